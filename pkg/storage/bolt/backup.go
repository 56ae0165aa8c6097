// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
)

// partial is what a file is called, after its own name, until it is whole.
const partial = ".partial"

// Snapshot returns a consistent copy of the file, open at its start, while the
// server goes on. The copy lies beside the file, takes as much space, has no name
// and is gone when it is closed; values in it are encrypted as they are in the
// file. It is made on the local disk because the file cannot be remapped
// meanwhile: send it afterwards. Errors: *DiskFullError, *ClosedError, and those
// of the file system.
func (db *DB) Snapshot() (copied *os.File, err error) {
	f, err := os.CreateTemp(filepath.Dir(db.path), filepath.Base(db.path)+".snapshot-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("snapshot of storage file %s: %w", db.path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // err says more
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("snapshot of storage file %s: %w", db.path, err)
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(f)
		return err
	}); err != nil {
		if isDiskFull(err) {
			err = &DiskFullError{Path: db.path, Err: err}
		}
		return nil, fmt.Errorf("snapshot of storage file %s: %w", db.path, err)
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// SaveBackup writes what from sends to path, which must not exist, and checks
// it. The file has mode 0600 and gets its name when all of it is on disk and
// found good; until then it is called path.partial. Errors: those of from, of
// CheckBackup and of the file system; nothing is left behind then.
func SaveBackup(path string, from io.Reader) error {
	if err := mustNotExist(path); err != nil {
		return err
	}
	return place(path, func(unfinished string) error {
		if err := write(unfinished, from); err != nil {
			return err
		}
		return CheckBackup(unfinished)
	})
}

// CheckBackup reads all that is in a backup, every checksum, and changes nothing.
// Errors: *CorruptFileError, *VersionError, *LockedError when a server has it
// open, and those of the file system.
func CheckBackup(path string) (err error) {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return &CorruptFileError{Path: path, Err: errors.New("it is empty")}
	}
	if err := verifyFile(path, lockTimeout); err != nil {
		return err
	}
	file, err := openBolt(path, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.View(func(tx *bbolt.Tx) error {
		switch found := formatOf(tx); {
		case found > formatVersion:
			return &VersionError{Path: path, Found: found, Supported: formatVersion}
		case found == 0:
			return &CorruptFileError{Path: path, Err: errors.New("it is a database of something else")}
		}
		if err := checkResources(tx); err != nil {
			return &CorruptFileError{Path: path, Err: err}
		}
		return nil
	})
}

func checkResources(tx *bbolt.Tx) error {
	resources := tx.Bucket(resourcesBucket)
	if resources == nil {
		return errors.New("the bucket of resources is missing")
	}
	return resources.ForEachBucket(func(name []byte) error {
		buckets, err := openResource(tx, string(name))
		if err != nil {
			return err
		}
		return errors.Join(
			buckets.objects.ForEach(func(key, stored []byte) error {
				o, err := decodeObject(key, stored)
				if err == nil && o.value == nil {
					err = &damage{what: fmt.Sprintf("object %s", key)}
				}
				return err
			}),
			buckets.log.ForEach(func(revision, stored []byte) error {
				_, err := decodeRecord(parseRevision(revision), stored)
				return err
			}),
		)
	})
}

// Restore makes path, which must not exist, from a backup. What happened since
// the backup is lost, but clients never see a resourceVersion go back (D5):
// every revision is raised above all that can have been given out, and the
// history is emptied, so that watches from before get "410 Expired" and list
// again. Only what is live is copied: nothing of what the backup's free pages
// held, such as values from before they were encrypted, is in the new file.
// Errors: those of CheckBackup and of the file system; there is no path then.
func Restore(backup, path string, now time.Time) error {
	if err := mustNotExist(path); err != nil {
		return fmt.Errorf("restoring %s: %w", backup, err)
	}
	if err := CheckBackup(backup); err != nil {
		return err
	}
	if err := place(path, func(unfinished string) error {
		return restore(backup, unfinished, now)
	}); err != nil {
		return fmt.Errorf("restoring %s to %s: %w", backup, path, err)
	}
	return nil
}

func restore(backup, path string, now time.Time) (err error) {
	in, err := os.Open(backup)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	raised := path + ".raised"
	if err := write(raised, in); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(raised)) }()
	from, err := openFile(raised, lockTimeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(resourcesBucket).ForEachBucket(func(name []byte) error {
			buckets, err := openResource(tx, string(name))
			if err != nil {
				return err
			}
			return raise(buckets.root, string(name), now)
		})
	}); err != nil {
		return err
	}
	to, err := openFile(path, lockTimeout)
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(to, from, maxBatchBytes), to.Close())
}

// raise moves a resource to a revision that no file can have reached by
// counting: revisions start at 1, or here, and there is less than one write per
// microsecond.
func raise(root *bbolt.Bucket, name string, now time.Time) error {
	s, err := readSummary(root, name)
	if err != nil {
		return err
	}
	rev := max(root.Sequence()+1, uint64(now.UnixMicro()))
	for _, child := range [][]byte{logBucket, historyBucket} {
		if err := root.DeleteBucket(child); err != nil {
			return err
		}
		if _, err := root.CreateBucket(child); err != nil {
			return err
		}
	}
	s.compacted, s.history = rev, 0
	return s.write(root, name, rev)
}

func mustNotExist(path string) error {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: move it away, or give another name", &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist})
}

// place makes a file under a passing name and gives it its own when it is whole.
// Whatever has that name by then stays: a server creates the file that it does
// not find.
func place(path string, build func(unfinished string) error) error {
	unfinished := path + partial
	if err := mustNotExist(unfinished); err != nil {
		return err
	}
	err := build(unfinished)
	if err == nil {
		if err = os.Link(unfinished, path); err != nil && !errors.Is(err, fs.ErrExist) {
			// A file system without hard links.
			if err = mustNotExist(path); err == nil {
				err = os.Rename(unfinished, path)
			}
		}
	}
	if removed := os.Remove(unfinished); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, syncDirectory(filepath.Dir(path)))
}

func write(path string, from io.Reader) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
