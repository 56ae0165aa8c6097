// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

const (
	manyEntries = 1000
	// thinBytes is more than a push of one change as deltas takes, and much less than
	// one of the directory as a whole.
	thinBytes = 2000
)

// manyFiles commits a directory that is worth a delta.
func (f *fixture) manyFiles() {
	files := map[string]string{"README": "1\n"}
	for i := range manyEntries {
		files[fmt.Sprintf("ns/f%04d.yaml", i)] = fmt.Sprintf("n: %d\n", i)
	}
	f.MustCommit("main", files)
}

// deliveries are the sizes of the pushes that reached a server, and how it takes
// thin ones: those of few bytes.
type deliveries struct {
	mu    sync.Mutex // protects the fields below
	sizes []int
	// thin, when set, answers a thin push.
	thin answer
}

type answer = func(w http.ResponseWriter, r *http.Request, next http.Handler)

func (d *deliveries) answerThin(a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.thin = a
}

func (d *deliveries) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !isPush(r) {
		next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	d.mu.Lock()
	d.sizes = append(d.sizes, len(body))
	thin := d.thin
	d.mu.Unlock()
	if thin != nil && len(body) < thinBytes {
		thin(w, r, next)
		return
	}
	next.ServeHTTP(w, r)
}

// wantPushes checks which pushes were thin, and forgets them.
func (d *deliveries) wantPushes(t *testing.T, thin ...bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var got []bool
	for _, size := range d.sizes {
		got = append(got, size < thinBytes)
	}
	wantEqual(t, fmt.Sprintf("pushes that were thin, of %v bytes,", d.sizes), fmt.Sprint(got), fmt.Sprint(thin))
	d.sizes = nil
}

func delivered(t *testing.T) (*fixture, *deliveries) {
	t.Helper()
	f, i := interfered(t)
	d := &deliveries{}
	i.set(d.handle)
	f.manyFiles()
	return f, d
}

func TestG1ThinPackCostsWhatTheChangeCosts(t *testing.T) {
	for name, limit := range map[string]string{"kept as a pack": "1", "unpacked": "10000"} {
		t.Run(name, func(t *testing.T) {
			f, d := delivered(t)
			if err := f.Configure(t.Context(), "receive.unpackLimit", limit); err != nil {
				t.Fatal(err)
			}
			f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
			f.pushOne(t, "main", commit("ns/f0000.yaml", "", "ns/g.yaml", "new\n"))
			d.wantPushes(t, true, true)
			wantEqual(t, "changed", f.Must("diff", "--name-status", "main~2", "main"), "D\tns/f0000.yaml\nM\tns/f0500.yaml\nA\tns/g.yaml")
			wantEqual(t, "content", f.MustShow("main", "ns/f0500.yaml"), "changed\n")
		})
	}
}

// Bases are what the tip holds, whatever the commits before in the batch did: also
// for what comes back, and for what takes the place of something else.
func TestThinPackOfABatch(t *testing.T) {
	f, d := delivered(t)
	built := f.push(t, "main",
		commit("ns/f0001.yaml", "x: 1\n"),
		commit("ns/f0001.yaml", "n: 1\n"), // as it was
		commit("../bad", "1\n", "ns/f0002.yaml", "lost\n"),
		commit("ns/f0001.yaml", "x: 2\n", "ns/f0003.yaml", "", "ns/f0003.yaml/deep", "1\n"),
		commit("ns/f0003.yaml/deep", "", "ns/f0003.yaml", "file again\n"),
	)
	d.wantPushes(t, true)
	wantEqual(t, "head", f.MustHead("main"), built[4].Hash)
	wantEqual(t, "commits", f.count(t, "main"), 5)
	wantEqual(t, "changed", f.Must("diff", "--name-status", "main~4", "main"), "M\tns/f0001.yaml\nM\tns/f0003.yaml")
	wantEqual(t, "as it was", f.Must("rev-parse", "main~2^{tree}"), f.Must("rev-parse", "main~4^{tree}"))
}

func TestThinPackAfterAForeignCommit(t *testing.T) {
	f, d := delivered(t)
	f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
	f.MustCommit("main", map[string]string{"ns/f0501.yaml": "foreign\n"})
	f.pushOne(t, "main", commit("ns/f0500.yaml", "again\n"))
	d.wantPushes(t, true, true)
	wantEqual(t, "foreign", f.MustShow("main", "ns/f0501.yaml"), "foreign\n")
}

// Stands for hosts that say that they want none.
func TestNoThinIsHonoured(t *testing.T) {
	f, i := interfered(t)
	d := &deliveries{}
	f.manyFiles()
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.HasSuffix(r.URL.RawQuery, "git-receive-pack") {
			d.handle(w, r, next)
			return
		}
		answer := &buffered{header: w.Header()}
		next.ServeHTTP(answer, r)
		// The first ref's line, of which the capabilities are the end.
		head, rest, _ := strings.Cut(answer.String(), "0000")
		end := strings.IndexByte(rest, '\n')
		line := rest[4:end] + " no-thin\n"
		_, _ = fmt.Fprintf(w, "%s0000%04x%s%s", head, len(line)+4, line, rest[end+1:])
	})
	f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
	d.wantPushes(t, false)
	wantEqual(t, "content", f.MustShow("main", "ns/f0500.yaml"), "changed\n")
}

type buffered struct {
	bytes.Buffer

	header http.Header
}

func (b *buffered) Header() http.Header { return b.header }
func (b *buffered) WriteHeader(int)     {}

// A remote that does not take a thin pack gets the same commits whole, at once,
// and no thin pack again.
func TestRefusedThinPackIsSentWhole(t *testing.T) {
	for name, refuse := range map[string]func(t *testing.T, f *fixture) answer{
		// git itself, told to take no pack whose bases are elsewhere.
		"git": func(t *testing.T, f *fixture) answer {
			return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				cmd := exec.CommandContext(r.Context(), "git", "-c", "receive.unpackLimit=1", "receive-pack", "--stateless-rpc", "--reject-thin-pack-for-testing", f.Dir)
				cmd.Stdin = r.Body
				said, err := cmd.Output()
				if err != nil || !bytes.Contains(said, []byte("unpacker error")) {
					t.Errorf("git took the thin pack: %q, %v", said, err)
				}
				_, _ = w.Write(said)
			}
		},
		"nothing is said": func(*testing.T, *fixture) answer {
			return func(http.ResponseWriter, *http.Request, http.Handler) {}
		},
		"words, no report": func(*testing.T, *fixture) answer {
			return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				_, _ = io.WriteString(w, "0013ERR no such base0000")
			}
		},
		"cut": func(*testing.T, *fixture) answer {
			return func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }
		},
		"an error of the server": func(*testing.T, *fixture) answer {
			return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
				w.WriteHeader(http.StatusInternalServerError)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := delivered(t)
			d.answerThin(refuse(t, f))
			records := 0
			built, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("ns/f0500.yaml", "changed\n")}, func([]git.Built) error {
				records++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "times recorded", records, 1)
			wantEqual(t, "head", f.MustHead("main"), built[0].Hash)
			wantEqual(t, "commits", f.count(t, "main"), 2)
			d.wantPushes(t, true, false)

			f.pushOne(t, "main", commit("ns/f0500.yaml", "again\n"))
			d.wantPushes(t, false)
			wantEqual(t, "commits", f.count(t, "main"), 3)
		})
	}
}

// Everything else that goes wrong has nothing to do with the pack.
func TestThinPackIsNotBlamed(t *testing.T) {
	t.Run("for a hook", func(t *testing.T) {
		f, d := delivered(t)
		f.MustHook("pre-receive", "echo no >&2; exit 1")
		_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("ns/f0500.yaml", "changed\n")}, nil)
		wantError[*git.RefusedError](t, err)
		d.wantPushes(t, true)
	})
	t.Run("when it landed", func(t *testing.T) {
		f, d := delivered(t)
		d.answerThin(func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(swallow{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		})
		b := f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
		d.wantPushes(t, true)
		wantEqual(t, "head", f.MustHead("main"), b.Hash)
	})
	t.Run("by a remote that wants to be left alone", func(t *testing.T) {
		f, d := delivered(t)
		d.answerThin(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("ns/f0500.yaml", "changed\n")}, nil)
		wantError[*git.UnreachableError](t, err)
		d.wantPushes(t, true)
	})
	t.Run("by a remote that has taken one", func(t *testing.T) {
		f, d := delivered(t)
		f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
		d.answerThin(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
		_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("ns/f0500.yaml", "again\n")}, nil)
		wantError[*git.UnreachableError](t, err)
		d.wantPushes(t, true, true)
		wantEqual(t, "commits", f.count(t, "main"), 2)
	})
	t.Run("on a moved branch", func(t *testing.T) {
		f, d := delivered(t)
		d.answerThin(func(http.ResponseWriter, *http.Request, http.Handler) {
			d.answerThin(nil)
			f.MustCommit("main", map[string]string{"foreign": "1\n"})
			panic(http.ErrAbortHandler)
		})
		f.pushOne(t, "main", commit("ns/f0500.yaml", "changed\n"))
		d.wantPushes(t, true, true)
		wantEqual(t, "commits", f.count(t, "main"), 3)
	})
}

// Eight branches share what is known of the remote.
func TestThinPacksOfManyBranches(t *testing.T) {
	f := setupOn(t, gitserver.New(t, gitserver.Config{}))
	f.manyFiles()
	for i := range 8 {
		f.Must("branch", fmt.Sprintf("b%d", i), "main")
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := f.repo.Push(t.Context(), fmt.Sprintf("b%d", i), []git.Commit{commit(fmt.Sprintf("ns/f%04d.yaml", i), "changed\n")}, nil)
			if err != nil {
				t.Errorf("branch %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		wantEqual(t, "changed", f.Must("diff", "--name-only", "main", fmt.Sprintf("b%d", i)), fmt.Sprintf("ns/f%04d.yaml", i))
	}
}
