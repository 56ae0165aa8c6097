// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1" // #nosec G505 -- the checksum that the pack format prescribes
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// packed is an object as it stands in a pack: whole, or as a delta of an object
// with the hash base.
type packed struct {
	object

	base plumbing.Hash
}

// encodePack writes a pack of the objects, in this order. The writers of zlib come
// from a pool, for one takes more memory than all else that a save does.
func encodePack(objects []packed, writers *sync.Pool) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, [2]uint32{2, uint32(len(objects))})
	z, ok := writers.Get().(*zlib.Writer)
	if !ok {
		z = zlib.NewWriter(nil)
	}
	defer writers.Put(z)
	for _, o := range objects {
		size := uint64(len(o.data))
		head := byte(o.kind)<<4 | byte(size&0x0f)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(head | 0x80)
			head = byte(size & 0x7f)
		}
		b.WriteByte(head)
		if o.kind == plumbing.REFDeltaObject {
			b.Write(o.base[:])
		}
		z.Reset(&b)
		if _, err := z.Write(o.data); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
	}
	sum := sha1.Sum(b.Bytes()) // #nosec G401
	b.Write(sum[:])
	return b.Bytes(), nil
}

// maxPackInflated bounds what one fetch may unfold to in memory. A tip of more
// than that needs a server that offers the filter capability.
const maxPackInflated = 1 << 30

// errTooLarge says that an answer is larger than the caller wants to hold.
var errTooLarge = errors.New("the objects are larger than what is looked at")

// errPack is the cause of every error about the bytes of a pack.
var errPack = errors.New("malformed pack")

// decodePack reads a pack and returns its objects by hash. base finds the
// bases of deltas that are not in the pack themselves. limit as in fetchRequest.
func decodePack(r io.Reader, base func(plumbing.Hash) (object, bool), limit int64) (map[plumbing.Hash]object, error) {
	if limit <= 0 {
		limit = maxPackInflated
	}
	d := &packDecoder{
		limit:    limit,
		in:       packInput{r: bufio.NewReaderSize(r, 64<<10), sum: sha1.New()}, // #nosec G401
		base:     base,
		byOffset: map[int64]object{},
		byHash:   map[plumbing.Hash]object{},
	}
	return d.decode()
}

type packDecoder struct {
	in       packInput
	base     func(plumbing.Hash) (object, bool)
	byOffset map[int64]object
	byHash   map[plumbing.Hash]object
	waiting  []waitingDelta
	limit    int64
	inflated int64
	zlib     io.ReadCloser
}

// waitingDelta is a delta whose base has not been seen yet.
type waitingDelta struct {
	at, baseAt int64
	baseHash   plumbing.Hash
	delta      []byte
}

func (d *packDecoder) decode() (map[plumbing.Hash]object, error) {
	var head [12]byte
	if _, err := io.ReadFull(&d.in, head[:]); err != nil {
		return nil, fmt.Errorf("%w: header: %w", errPack, err)
	}
	if string(head[:4]) != "PACK" {
		return nil, fmt.Errorf("%w: no signature", errPack)
	}
	if v := binary.BigEndian.Uint32(head[4:]); v != 2 && v != 3 {
		return nil, fmt.Errorf("%w: version %d", errPack, v)
	}
	count := binary.BigEndian.Uint32(head[8:])
	for i := range count {
		if err := d.entry(); err != nil {
			return nil, fmt.Errorf("%w: object %d of %d: %w", errPack, i+1, count, err)
		}
	}
	sum := d.in.sum.Sum(nil)
	var trailer [20]byte
	if _, err := io.ReadFull(d.in.r, trailer[:]); err != nil {
		return nil, fmt.Errorf("%w: checksum: %w", errPack, err)
	}
	if !bytes.Equal(sum, trailer[:]) {
		return nil, fmt.Errorf("%w: wrong checksum", errPack)
	}
	// Bases named by hash may stand behind their deltas.
	for len(d.waiting) > 0 {
		left := d.waiting
		d.waiting = nil
		for _, w := range left {
			if err := d.resolve(w); err != nil {
				return nil, err
			}
		}
		if len(d.waiting) == len(left) {
			return nil, fmt.Errorf("%w: %d deltas without a base", errPack, len(left))
		}
	}
	return d.byHash, nil
}

func (d *packDecoder) entry() error {
	at := d.in.offset
	c, err := d.in.ReadByte()
	if err != nil {
		return err
	}
	kind := plumbing.ObjectType(c >> 4 & 7)
	size := uint64(c & 0x0f)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = d.in.ReadByte(); err != nil {
			return err
		}
		if shift > 50 {
			return errors.New("size out of range")
		}
		size |= uint64(c&0x7f) << shift
	}
	w := waitingDelta{at: at}
	switch kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		distance := int64(-1)
		for more := true; more; more = c&0x80 != 0 {
			if c, err = d.in.ReadByte(); err != nil {
				return err
			}
			distance = (distance+1)<<7 | int64(c&0x7f)
			if distance > at {
				return errors.New("delta base before the pack")
			}
		}
		w.baseAt = at - distance
	case plumbing.REFDeltaObject:
		if _, err := io.ReadFull(&d.in, w.baseHash[:]); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown object type %d", kind)
	}
	data, err := d.inflate(size)
	if err != nil {
		return err
	}
	if !kind.IsDelta() {
		d.keep(at, object{kind, data})
		return nil
	}
	w.delta = data
	return d.resolve(w)
}

func (d *packDecoder) inflate(size uint64) ([]byte, error) {
	if err := d.take(size); err != nil {
		return nil, err
	}
	if d.zlib == nil {
		z, err := zlib.NewReader(&d.in)
		if err != nil {
			return nil, err
		}
		d.zlib = z
	} else if err := d.zlib.(zlib.Resetter).Reset(&d.in, nil); err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(d.zlib, data); err != nil {
		return nil, err
	}
	// The end has to be read for its checksum, and to stand behind it in the stream.
	if n, err := d.zlib.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, fmt.Errorf("object longer than its header says: %w", err)
	}
	return data, nil
}

// take counts bytes before they are held.
func (d *packDecoder) take(size uint64) error {
	if left := uint64(d.limit - d.inflated); size > left {
		if d.limit < maxPackInflated {
			return errTooLarge
		}
		return &UnsupportedError{What: fmt.Sprintf("a branch of more than %d bytes on a server without the filter capability", int64(maxPackInflated))}
	}
	d.inflated += int64(size)
	return nil
}

func (d *packDecoder) resolve(w waitingDelta) error {
	var from object
	ok := false
	if w.baseAt != 0 {
		from, ok = d.byOffset[w.baseAt]
	} else if from, ok = d.byHash[w.baseHash]; !ok {
		from, ok = d.base(w.baseHash)
	}
	if !ok {
		d.waiting = append(d.waiting, w)
		return nil
	}
	data, err := packfile.PatchDelta(from.data, w.delta)
	if err != nil {
		return fmt.Errorf("%w: delta: %w", errPack, err)
	}
	if err := d.take(uint64(len(data))); err != nil {
		return err
	}
	d.keep(w.at, object{from.kind, data})
	return nil
}

func (d *packDecoder) keep(at int64, o object) {
	d.byOffset[at] = o
	d.byHash[o.hash()] = o
}

// packInput counts and sums what is read. It is an io.ByteReader so that zlib
// reads not one byte too many.
type packInput struct {
	r      *bufio.Reader
	sum    hash.Hash
	offset int64
	one    [1]byte
}

func (p *packInput) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.sum.Write(b[:n])
	p.offset += int64(n)
	return n, err
}

func (p *packInput) ReadByte() (byte, error) {
	c, err := p.r.ReadByte()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	p.one[0] = c
	p.sum.Write(p.one[:])
	p.offset++
	return c, nil
}
