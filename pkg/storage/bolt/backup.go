// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// Backup writes a consistent copy of the file to path, which must not exist,
// while the server goes on. The copy has mode 0600 and is on disk when Backup
// returns; values in it are encrypted as they are in the file. Copy it to a
// local disk: the file cannot be remapped meanwhile.
func (db *DB) Backup(path string) (err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("backup of storage file %s: %w", db.path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(out)
		return err
	})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("backup of storage file %s to %s: %w", db.path, path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// Restore makes path, which must not exist, from a backup. What happened since
// the backup is lost, but clients never see a resourceVersion go back (D5):
// every revision is raised above all that can have been given out, and the
// history is emptied, so that watches from before get "410 Expired" and list
// again. Errors: *CorruptFileError, *VersionError, and those of the file system.
func Restore(backup, path string, now time.Time) (err error) {
	if err := copyFile(backup, path); err != nil {
		return fmt.Errorf("restoring %s to %s: %w", backup, path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	file, err := openFile(path, lockTimeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Update(func(tx *bbolt.Tx) error {
		if found := formatOf(tx); found != formatVersion {
			return &VersionError{Path: backup, Found: found, Supported: formatVersion}
		}
		return tx.Bucket(resourcesBucket).ForEachBucket(func(name []byte) error {
			buckets, err := openResource(tx, string(name))
			if err != nil {
				return err
			}
			return raise(buckets.root, now)
		})
	})
}

// raise moves a resource to a revision that no file can have reached by
// counting: revisions start at 1, or here, and there is less than one write per
// microsecond.
func raise(root *bbolt.Bucket, now time.Time) error {
	rev := max(root.Sequence()+1, uint64(now.UnixMicro()))
	for _, child := range [][]byte{logBucket, historyBucket} {
		if err := root.DeleteBucket(child); err != nil {
			return err
		}
		if _, err := root.CreateBucket(child); err != nil {
			return err
		}
	}
	return errors.Join(root.Put(compactedKey, revisionKey(rev)), root.SetSequence(rev))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
