// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"
)

const (
	// expiryStep bounds what one batch expires.
	expiryStep = 500
	// expiryRetry is the wait after a failed round.
	expiryRetry = time.Second
)

// expiryLoop deletes objects whose time to live is over, as ordinary deletes
// with a revision and an event.
func (db *DB) expiryLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-db.expiryWake:
		case <-timer.C:
		}
		next, err := db.expire(time.Now())
		var closed *ClosedError
		switch {
		case errors.As(err, &closed):
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Expiring objects failed, will be tried again")
			timer.Reset(expiryRetry)
		case next != 0:
			timer.Reset(max(0, time.Until(time.Unix(0, next))))
		default:
			timer.Stop()
		}
	}
}

func (db *DB) wakeExpiry() {
	select {
	case db.expiryWake <- struct{}{}:
	default:
	}
}

// expire deletes what is due now and returns when the next object is, 0 when
// none has a time to live.
func (db *DB) expire(now time.Time) (int64, error) {
	for {
		due, next, err := db.dueForExpiry(now)
		if err != nil || len(due) == 0 {
			return next, err
		}
		if err := db.submit(0, func(b *batch) error {
			for _, k := range due {
				if err := b.expire(k); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return 0, err
		}
	}
}

func (db *DB) dueForExpiry(now time.Time) (due [][]byte, next int64, err error) {
	err = db.read(func(tx *bbolt.Tx) error {
		due, next = nil, 0
		c := tx.Bucket(expiryBucket).Cursor()
		for k, _ := c.First(); k != nil && len(due) < expiryStep; k, _ = c.Next() {
			at, _, _, ok := splitExpiryKey(k)
			if ok && at > now.UnixNano() {
				next = at
				break
			}
			due = append(due, bytes.Clone(k))
		}
		return nil
	})
	return due, next, err
}

// expire deletes the object that the entry k is about, unless it has been
// written or removed since: then its entry is gone too.
func (b *batch) expire(k []byte) error {
	expiries := b.tx.Bucket(expiryBucket)
	at, name, key, ok := splitExpiryKey(k)
	if r := b.db.lookup(name); ok && r != nil {
		p, err := b.resource(r)
		if err != nil {
			return err
		}
		o, err := p.current(key)
		if err != nil {
			return err
		}
		if o.rev != 0 && o.expiry == at {
			_, err := p.delete(key, o.rev)
			return err
		}
	}
	b.dirty = true
	return expiries.Delete(k)
}
