// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" // #nosec G505 -- the checksum of the pack format
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/go-git/go-git/v5/plumbing"
)

func pkt(s string) string          { return string(appendPacket(nil, s)) }
func band(n byte, s string) string { return pkt(string(rune(n)) + s) }
func pkts(lines ...string) (out string) {
	for _, l := range lines {
		out += pkt(l)
	}
	return out + "0000"
}

// Answers of hosts that cannot run here, each named for the public report.
func TestG4ReportIsReadTolerantly(t *testing.T) {
	const ref = "refs/heads/main"
	good := pkts("unpack ok\n", "ok "+ref+"\n")
	for name, tc := range map[string]struct {
		answer          string
		landed, refused bool
		reason, text    string
	}{
		"plain":                    {answer: good, landed: true},
		"sideband":                 {answer: band(1, good) + "0000", landed: true},
		"sideband, split anywhere": {answer: band(1, good[:7]) + band(2, "x\n") + band(1, good[7:]) + "0000", landed: true, text: "x\n"},
		"grafana#124392: fatal on band 2, but ok": {answer: band(2, "fatal: cannot update FETCH_HEAD, ignoring\n") + band(1, good) + "0000", landed: true, text: "fatal: cannot update FETCH_HEAD, ignoring\n"},
		"without the last flush":                  {answer: pkt("unpack ok\n") + pkt("ok "+ref+"\n"), landed: true},
		"without line breaks":                     {answer: pkts("unpack ok", "ok "+ref), landed: true},
		"report-status-v2 options":                {answer: pkts("unpack ok\n", "ok "+ref+"\n", "option refname "+ref+"\n", "option forced-update\n"), landed: true},
		"IAC#194: protected branch":               {answer: band(1, pkts("unpack ok\n", "ng "+ref+" protected branch hook declined\n")) + "0000", refused: true, reason: "protected branch hook declined"},
		"ng without a reason":                     {answer: pkts("unpack ok\n", "ng "+ref+"\n"), refused: true},
		"unpacker error":                          {answer: pkts("unpack index-pack abnormal exit\n", "ng "+ref+" unpacker error\n"), refused: true, reason: "unpack index-pack abnormal exit, unpacker error"},
		"both, the refusal counts":                {answer: pkts("unpack ok\n", "ok "+ref+"\n", "ng "+ref+" x\n"), refused: true, reason: "x"},
		"empty":                                   {answer: ""},
		"flush only":                              {answer: "0000"},
		"unpack ok alone":                         {answer: pkts("unpack ok\n")},
		"another ref":                             {answer: pkts("unpack ok\n", "ok refs/heads/mainly\n", "ng refs/heads/mai x\n")},
		"a ref cut at a space":                    {answer: pkts("unpack ok\n", "ng refs/heads/main2 funny refname\n")},
		"band 3":                                  {answer: band(3, "fatal: pack exceeds maximum allowed size\n") + "0000", text: "fatal: pack exceeds maximum allowed size\n"},
		"ERR":                                     {answer: pkt("ERR access denied"), text: "access denied"},
		"cut in our line":                         {answer: pkt("unpack ok\n") + pkt("ok " + ref + "\n")[:12]},
		"cut in the sideband, behind our line":    {answer: band(1, good) + "00", landed: true},
		"garbage":                                 {answer: "<html>ok refs/heads/main</html>"},
		"our line as the text of a hook":          {answer: band(2, "ok "+ref+"\n") + band(1, pkts("unpack ok\n")) + "0000", text: "ok " + ref + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := readReport(iotest.OneByteReader(strings.NewReader(tc.answer)), ref)
			if r.landed != tc.landed || r.refused != tc.refused || r.reason != tc.reason || r.text != tc.text {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestAdvertisementIsReadTolerantly(t *testing.T) {
	h := strings.Repeat("1", 40)
	head := "# service=git-receive-pack\n"
	for name, tc := range map[string]struct {
		in   string
		tip  bool
		caps string
	}{
		"HTTP":                       {in: pkts(head) + pkts(h+" HEAD\x00report-status agent=x", h+" refs/heads/main\n", h+" refs/tags/main\n"), tip: true, caps: "report-status"},
		"SSH":                        {in: pkts(h + " refs/heads/main\x00report-status\n"), tip: true, caps: "report-status"},
		"version line":               {in: pkts(head) + pkts("version 1\n", h+" refs/heads/main\x00atomic\n"), tip: true, caps: "atomic"},
		"empty repository":           {in: pkts(head) + pkts(strings.Repeat("0", 40)+" capabilities^{}\x00report-status\n"), caps: "report-status"},
		"flush only":                 {in: pkts(head) + "0000"},
		"header only":                {in: pkts(head)},
		"shallow and hidden history": {in: pkts(h+" refs/heads/main\x00x\n", "shallow "+h, h+" .have\n"), tip: true, caps: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := parseAdvertisement(strings.NewReader(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if a.tip("main").IsZero() == tc.tip || (tc.caps != "" && !a.capabilities.has(tc.caps)) {
				t.Errorf("got %+v", a)
			}
		})
	}
	for name, in := range map[string]string{
		"SHA-256 by capability": pkts(strings.Repeat("0", 64) + " capabilities^{}\x00object-format=sha256\n"),
		"SHA-256 by length":     pkts(strings.Repeat("1", 64) + " refs/heads/main\x00report-status\n"),
	} {
		_, err := parseAdvertisement(strings.NewReader(in))
		if _, ok := errors.AsType[*UnsupportedError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, in := range map[string]string{"ERR": pkt("ERR nope\n"), "cut": pkts(head) + pkt(h + " refs/heads/main\x00x")[:30], "garbage": pkts(head) + pkts("hello")} {
		if _, err := parseAdvertisement(strings.NewReader(in)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Some hosts answer 400 unless multi_ack is asked for (go-git#64, kpack#1336).
func TestFetchNamesMultiAck(t *testing.T) {
	for caps, want := range map[string]string{"multi_ack": " multi_ack", "multi_ack multi_ack_detailed": " multi_ack_detailed"} {
		c := capabilities{}
		for n := range strings.FieldsSeq(caps) {
			c[n] = ""
		}
		if got := string((fetchRequest{wants: []plumbing.Hash{{1}}, depth: 1, filter: filterBlobs}).encode(c)); !strings.Contains(got, want+"\n") || strings.Contains(got, "filter") || strings.Contains(got, "deepen") {
			t.Errorf("request %q", got)
		}
	}
}

func TestPackStreamSkipsNegotiation(t *testing.T) {
	for name, in := range map[string]string{
		"raw":      pkt("shallow x\n") + "0000" + pkt("NAK\n") + "PACKdata",
		"sideband": pkt("ACK x common\n") + pkt("ACK x\n") + band(2, "progress") + band(1, "PA") + band(1, "CKdata") + "0000",
	} {
		r, err := packStream(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != "PACKdata" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for name, in := range map[string]string{"ERR": pkt("ERR upload-pack: not our ref"), "band 3": pkt("NAK\n") + band(3, "fatal")} {
		_, err := packStream(strings.NewReader(in))
		if _, ok := errors.AsType[*remoteError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPackRoundTrip(t *testing.T) {
	var objects []object
	for i := range 300 {
		objects = append(objects, object{plumbing.BlobObject, bytes.Repeat([]byte{byte(i)}, i*i)})
	}
	objects = append(objects, object{kind: plumbing.TreeObject}, object{plumbing.CommitObject, []byte("tree x")})
	var whole []packed
	for _, o := range objects {
		whole = append(whole, packed{object: o})
	}
	pack, err := encodePack(whole, &sync.Pool{})
	if err != nil {
		t.Fatal(err)
	}
	none := func(plumbing.Hash) (object, bool) { return object{}, false }
	got, err := decodePack(iotest.HalfReader(bytes.NewReader(pack)), none, 0) // nanogit#343: short reads
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if g := got[o.hash()]; g.kind != o.kind || !bytes.Equal(g.data, o.data) {
			t.Errorf("%s of %d bytes: got %s of %d", o.kind, len(o.data), g.kind, len(g.data))
		}
	}
	for n := range pack {
		if n%97 != 0 && n < len(pack)-30 {
			continue
		}
		if _, err := decodePack(bytes.NewReader(pack[:n]), none, 0); err == nil {
			t.Errorf("a pack cut at %d of %d is accepted", n, len(pack))
		}
	}
	pack[len(pack)-1] ^= 1
	if _, err := decodePack(bytes.NewReader(pack), none, 0); !errors.Is(err, errPack) {
		t.Errorf("wrong checksum: %v", err)
	}
}

// deltaPack writes entries as given, which encodePack never does.
func deltaPack(entries ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("PACK"), 2), uint32(len(entries)))
	for _, e := range entries {
		b = append(b, e...)
	}
	sum := sha1.Sum(b) // #nosec G401
	return append(b, sum[:]...)
}

func packEntry(kind plumbing.ObjectType, between, data []byte) []byte {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(data)
	_ = w.Close()
	return append(append([]byte{byte(kind)<<4 | byte(len(data))}, between...), z.Bytes()...)
}

func TestPackDeltas(t *testing.T) {
	base := object{plumbing.BlobObject, []byte("0123456789")}
	baseHash := base.hash()
	// Source 10 bytes, target 3: copy 2 bytes from offset 4, insert "x".
	delta := []byte{10, 3, 0x91, 4, 2, 1, 'x'}
	want := object{plumbing.BlobObject, []byte("45x")}
	whole := packEntry(plumbing.BlobObject, nil, base.data)
	byHash := packEntry(plumbing.REFDeltaObject, baseHash[:], delta)
	none := func(plumbing.Hash) (object, bool) { return object{}, false }
	for name, tc := range map[string]struct {
		pack []byte
		base func(plumbing.Hash) (object, bool)
	}{
		"by offset":               {deltaPack(whole, packEntry(plumbing.OFSDeltaObject, []byte{byte(len(whole))}, delta)), none},
		"by hash":                 {deltaPack(whole, byHash), none},
		"by hash, base behind":    {deltaPack(byHash, whole), none},
		"by hash, base not in it": {deltaPack(byHash), func(h plumbing.Hash) (object, bool) { return base, h == baseHash }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodePack(bytes.NewReader(tc.pack), tc.base, 0)
			if err != nil {
				t.Fatal(err)
			}
			if o := got[want.hash()]; string(o.data) != "45x" || o.kind != plumbing.BlobObject {
				t.Errorf("got %v", got)
			}
		})
	}
	for name, pack := range map[string][]byte{
		"without a base":    deltaPack(byHash),
		"before the pack":   deltaPack(packEntry(plumbing.OFSDeltaObject, []byte{127}, delta)),
		"onto itself":       deltaPack(packEntry(plumbing.OFSDeltaObject, []byte{0}, delta)),
		"longer than said":  deltaPack(append([]byte{0x30 | 2}, packEntry(plumbing.BlobObject, nil, []byte("abc"))[1:]...)),
		"of an odd type":    deltaPack([]byte{0x50, 1, 2, 3}),
		"of an absurd size": deltaPack([]byte{0xbf, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2}),
	} {
		if _, err := decodePack(bytes.NewReader(pack), none, 0); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzDecodePack(f *testing.F) {
	pack, _ := encodePack([]packed{{object: object{plumbing.BlobObject, []byte("x")}}}, &sync.Pool{})
	f.Add(pack)
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = decodePack(bytes.NewReader(b), func(plumbing.Hash) (object, bool) { return object{}, false }, 0)
		_ = readReport(bytes.NewReader(b), "refs/heads/main")
		_, _ = parseAdvertisement(bytes.NewReader(b))
		_, _ = parseTree(b)
		_ = cleanText(string(b))
	})
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := newShelf(10 * (objectOverhead + 10))
	put := func(i int) plumbing.Hash {
		o := object{plumbing.BlobObject, fmt.Appendf(nil, "%010d", i)}
		c.put(o.hash(), o)
		return o.hash()
	}
	first := put(0)
	for i := 1; i < 100; i++ {
		put(i)
		if _, ok := c.get(first); !ok {
			t.Fatalf("the one in use is gone after %d others", i)
		}
	}
	if c.size > c.limit || len(c.entries) != 10 {
		t.Errorf("%d bytes in %d entries", c.size, len(c.entries))
	}
	huge := object{plumbing.BlobObject, make([]byte, c.limit)}
	c.put(huge.hash(), huge)
	if _, ok := c.get(first); !ok {
		t.Error("one huge object pushed the others out")
	}
}

// Blobs push no tree out, however many there are.
func TestCacheKeepsTreesFromBlobs(t *testing.T) {
	c := newCache(blobShare * 10 * (objectOverhead + 10))
	tree := object{plumbing.TreeObject, make([]byte, 10)}
	c.put(tree.hash(), tree)
	for i := range 1000 {
		o := object{plumbing.BlobObject, fmt.Appendf(nil, "%010d", i)}
		c.put(o.hash(), o)
	}
	if _, ok := c.get(tree.hash()); !ok {
		t.Error("the tree is gone")
	}
	if len(c.blobs.entries) != 10 {
		t.Errorf("%d blobs are kept, want 10", len(c.blobs.entries))
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tc := range [][3]string{
		{"120", "", "2m0s"}, {"", "", "0s"}, {"soon", "", "0s"}, {"-5", "", "0s"},
		{"Wed, 21 Oct 2015 07:28:30 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", "30s"},
		{"Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:30 GMT", "0s"},
	} {
		if got := retryAfter(tc[0], tc[1]).String(); got != tc[2] {
			t.Errorf("%q at %q: %s, want %s", tc[0], tc[1], got, tc[2])
		}
	}
}
