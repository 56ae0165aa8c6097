// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// contents compares what is in the file with what its summaries say, once, at
// Open. What verifyFile has passed is a well-formed tree; this finds one that
// is not the newest, or lacks something.
type contents struct {
	tx       *bbolt.Tx
	expiring int      // objects with a time to live
	damaged  []string // objects that do not match their checksum; the rest is good
}

// resource reads all of one resource. The errors are *damage.
func (c *contents) resource(name string, b resourceBuckets) error {
	s, err := readSummary(b.root, name)
	if err != nil {
		return err
	}
	found, err := c.objects(name, b)
	if err != nil {
		return err
	}
	if found.counters != s.counters || found.objects != s.objects {
		return &damage{what: fmt.Sprintf("the set of objects in %q", name)}
	}
	found.history, err = history(b)
	if err != nil {
		return err
	}
	if found.history != s.history {
		return &damage{what: fmt.Sprintf("the set of history entries in %q", name)}
	}
	return nil
}

func (c *contents) objects(name string, b resourceBuckets) (summary, error) {
	var found summary
	newest, expiries := b.root.Sequence(), c.tx.Bucket(expiryBucket)
	return found, b.objects.ForEach(func(key, stored []byte) error {
		o, err := decodeObject(key, stored)
		if err != nil {
			return err
		}
		if o.rev > newest {
			return &damage{what: fmt.Sprintf("revision of object %s", key)}
		}
		if o.value == nil {
			c.damaged = append(c.damaged, string(key))
		}
		if o.expiry != 0 {
			c.expiring++
			if expiries.Get(expiryKey(o.expiry, name, string(key))) == nil {
				return &damage{what: fmt.Sprintf("expiry of object %s", key)}
			}
		}
		found.count++
		found.bytes += int64(o.size)
		found.objects.toggle(string(key), o.rev)
		return nil
	})
}

// history checks that the index and the log are about the same writes. A record
// that does not match its checksum is left for whoever needs it.
func history(b resourceBuckets) (digest, error) {
	var found digest
	entries := 0
	if err := b.history.ForEach(func(k, _ []byte) error {
		key, rev, ok := splitHistoryKey(k)
		stored := b.log.Get(revisionKey(rev))
		if !ok || stored == nil {
			return &damage{what: "the index of the history"}
		}
		if r, err := decodeRecord(rev, stored); err == nil && r.key != string(key) {
			return &damage{what: fmt.Sprintf("history of %s at revision %d", key, rev)}
		}
		entries++
		found.toggle(string(key), rev)
		return nil
	}); err != nil {
		return 0, err
	}
	return found, b.log.ForEach(func([]byte, []byte) error {
		if entries--; entries < 0 {
			return &damage{what: "the log"}
		}
		return nil
	})
}

// expiries checks that there is an entry for each object with a time to live,
// and no other. It comes after all resources.
func (c *contents) expiries() error {
	return c.tx.Bucket(expiryBucket).ForEach(func([]byte, []byte) error {
		if c.expiring--; c.expiring < 0 {
			return &damage{what: "the index of times to live"}
		}
		return nil
	})
}
