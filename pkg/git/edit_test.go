// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// without drops the lines about these paths and the directories above them: what
// is left are the neighbours.
func without(lsTree string, paths ...string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(lsTree, "\n"), func(line string) bool {
		_, path, _ := strings.Cut(line, "\t")
		return slices.ContainsFunc(paths, func(p string) bool { return p == path || strings.HasPrefix(p, path+"/") })
	}), "\n")
}

func TestG8NeighboursStayByteForByte(t *testing.T) {
	f := setup(t)
	submodule := strings.Repeat("ab", 20)
	f.MustCommitModes("main", map[string]string{
		"ns/run.sh":      "#!/bin/sh\n",
		"ns/link":        "../README",
		"ns/module":      submodule,
		"ns/odd\tname ü": "x\n",
		"ns/README":      "1\n",
		"ns/readme":      "2\n",
		"ns/sub/deep":    "3\n",
		"ns-a":           "4\n", // sorts before the directory ns, after the name
		"ns.a":           "5\n",
		"ns0":            "6\n",
		".gitattributes": "* text=auto eol=crlf\n",
	}, map[string]string{"ns/run.sh": "100755", "ns/link": "120000", "ns/module": "160000"})
	before := f.lsTree("main")
	f.pushOne(t, "main", commit("ns/a.yaml", "a: 1\n", "ns/sub/b.yaml", "b: 1\n"))
	wantEqual(t, "neighbours", without(f.lsTree("main"), "ns/a.yaml", "ns/sub/b.yaml"), without(before, "ns/a.yaml", "ns/sub/b.yaml"))
	f.pushOne(t, "main", commit("ns/a.yaml", "", "ns/sub/b.yaml", ""))
	wantEqual(t, "all, after removing ours", f.lsTree("main"), before)
}

// Trees that git itself would not write stay as they are, too.
func TestG8EmptyTreesAndOddModesStay(t *testing.T) {
	f := setup(t)
	blob := f.Must("rev-parse", f.MustCommit("main", map[string]string{"f": "1\n"})+":f")
	empty := f.MustWrite("tree", "")
	entry := func(mode, name, hash string) string {
		raw, err := hex.DecodeString(hash)
		if err != nil {
			t.Fatal(err)
		}
		return mode + " " + name + "\x00" + string(raw)
	}
	odd := entry("100664", "group", blob) + entry("40000", "nothing", empty)
	root := f.MustWrite("tree", entry("40000", "ns", f.MustWrite("tree", odd)))
	if _, err := f.CommitTree(t.Context(), "main", root, "F <f@example.com>", "odd"); err != nil {
		t.Fatal(err)
	}
	f.pushOne(t, "main", commit("ns/a.yaml", "a: 1\n"))
	wantEqual(t, "tree", f.Must("cat-file", "tree", "main:ns"), entry("100644", "a.yaml", git.BlobHash([]byte("a: 1\n")))+odd)
	// The mode of an existing file is kept as well.
	f.pushOne(t, "main", commit("ns/group", "2\n"))
	wantEqual(t, "tree", f.Must("cat-file", "tree", "main:ns"), entry("100644", "a.yaml", git.BlobHash([]byte("a: 1\n")))+
		entry("100664", "group", git.BlobHash([]byte("2\n")))+entry("40000", "nothing", empty))
	// Only what our removal leaves empty goes.
	f.pushOne(t, "main", commit("ns/a.yaml", "", "ns/group", ""))
	wantEqual(t, "tree", f.Must("cat-file", "tree", "main:ns"), entry("40000", "nothing", empty))
}

func TestModeOfAnExistingFileIsKept(t *testing.T) {
	f := setup(t)
	f.MustCommitModes("main", map[string]string{"run.sh": "1\n"}, map[string]string{"run.sh": "100755"})
	f.pushOne(t, "main", commit("run.sh", "2\n", "new.sh", "#!/bin/sh\n"))
	wantEqual(t, "modes", f.Must("ls-tree", "--format=%(objectmode) %(path)", "main"), "100644 new.sh\n100755 run.sh")
}

func TestBytesAreWrittenAsTheyAre(t *testing.T) { // go-git#691: autocrlf and attributes
	f := setup(t)
	f.MustCommit("main", map[string]string{".gitattributes": "* text=auto eol=crlf\n"})
	content := "a: 1\r\nb: \x00\xff\r\n"
	f.pushOne(t, "main", commit("a.yaml", content))
	wantEqual(t, "content", f.MustShow("main", "a.yaml"), content)
	wantEqual(t, "hash", git.BlobHash([]byte(content)), f.Must("rev-parse", "main:a.yaml"))
}

func TestEmptiedDirectoriesAreRemoved(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"a/b/c/d.yaml": "1\n", "a/keep": "1\n", "z/y/x": "1\n"})
	b := f.pushOne(t, "main", commit("a/b/c/d.yaml", "", "z/y/x", ""))
	wantEqual(t, "files", f.Must("ls-tree", "-r", "-t", "--name-only", "main"), "a\na/keep")
	if diff := cmp.Diff([]string{"a/b/c/d.yaml", "z/y/x"}, b.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	f.pushOne(t, "main", commit("a/keep", ""))
	wantEqual(t, "the last file", f.Must("ls-tree", "-r", "-t", "main"), "")
	f.pushOne(t, "main", commit("n/e.yaml", "1\n"))
	wantEqual(t, "a first file again", f.Must("ls-tree", "-r", "--name-only", "main"), "n/e.yaml")
}

func TestDirectoryAndFileReplaceEachOther(t *testing.T) {
	f := setup(t)
	f.MustCommit("main", map[string]string{"a": "1\n", "a-b": "1\n", "a0": "1\n", "d/x": "1\n", "d/y": "1\n"})
	// A file gives way only when the same edit removes it.
	b := f.push(t, "main", commit("a/b", "1\n"))[0]
	wantNotRegular(t, b.Err, "a", git.KindFile)
	f.pushOne(t, "main", commit("a", "", "a/b", "1\n"))
	wantEqual(t, "file to directory", f.Must("ls-tree", "-r", "--name-only", "main"), "a-b\na/b\na0\nd/x\nd/y")
	// A directory only when the same edit leaves nothing in it.
	b = f.push(t, "main", commit("d/x", "", "d", "1\n"))[0]
	wantNotRegular(t, b.Err, "d", git.KindDirectory)
	f.pushOne(t, "main", commit("d/x", "", "d/y", "", "d", "1\n"))
	wantEqual(t, "directory to file", f.Must("ls-tree", "-r", "--name-only", "main"), "a-b\na/b\na0\nd")
	// A directory is never removed as if it were a file.
	b = f.push(t, "main", commit("a", ""))[0]
	wantNotRegular(t, b.Err, "a", git.KindDirectory)
	// Not even within one edit can a path be both.
	b = f.push(t, "main", commit("n", "1\n", "n/m", "1\n"))[0]
	wantNotRegular(t, b.Err, "n", git.KindDirectory)
}

func wantNotRegular(t *testing.T, err error, path string, kind git.Kind) {
	t.Helper()
	var e *git.NotRegularError
	if !errors.As(err, &e) {
		t.Errorf("error %v, want a NotRegularError about %s", err, path)
		return
	}
	wantEqual(t, "path", e.Path, path)
	wantEqual(t, "kind", e.Kind, kind)
}

const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

func TestG8NothingIsWrittenThroughLinksSubmodulesAndPointers(t *testing.T) { // git-lfs#2744
	f := setup(t)
	f.MustCommitModes("main", map[string]string{
		"link": "elsewhere", "module": strings.Repeat("ab", 20), "elsewhere/x": "1\n", "p.yaml": pointer, ".gitattributes": "*.yaml filter=lfs\n",
	}, map[string]string{"link": "120000", "module": "160000"})
	before := f.lsTree("main")
	for _, tc := range []struct {
		path, content, at string
		kind              git.Kind
	}{
		{"link", "1\n", "link", git.KindSymlink},
		{"link", "", "link", git.KindSymlink},
		{"link/x", "1\n", "link", git.KindSymlink},
		{"link/x", "", "link", git.KindSymlink},
		{"module", "1\n", "module", git.KindSubmodule},
		{"module/a/b", "1\n", "module", git.KindSubmodule},
		{"p.yaml", "a: 1\n", "p.yaml", git.KindLFSPointer},
	} {
		t.Run(tc.path, func(t *testing.T) {
			b := f.push(t, "main", commit("ok", "1\n", tc.path, tc.content))[0]
			wantNotRegular(t, b.Err, tc.at, tc.kind)
			wantEqual(t, "tree", f.lsTree("main"), before)
			tree, err := f.repo.Tree(t.Context(), "main")
			if err != nil {
				t.Fatal(err)
			}
			_, err = tree.Read(t.Context(), tc.path)
			wantNotRegular(t, err, tc.at, tc.kind)
		})
	}
}

func TestNewNamesDoNotCollide(t *testing.T) { // joplin#11476
	f := setup(t)
	f.MustCommit("main", map[string]string{"ns/README": "1\n", "ns/readme": "1\n", "ns/caf\u00e9": "1\n"})
	for _, name := range []string{"ns/Readme", "ns/cafe\u0301", "NS/x"} {
		b := f.push(t, "main", commit(name, "1\n"))[0]
		var e *git.CollisionError
		if !errors.As(b.Err, &e) || !strings.HasPrefix(name, e.Path) {
			t.Errorf("%s: error %v, want a CollisionError", name, b.Err)
		}
	}
	// Those that are there already are edited as any other.
	f.pushOne(t, "main", commit("ns/readme", "2\n"))
	wantEqual(t, "README", f.MustShow("main", "ns/README"), "1\n")
	wantEqual(t, "readme", f.MustShow("main", "ns/readme"), "2\n")
}

func TestEntryOrderIsThatOfWriteTree(t *testing.T) {
	names := []string{"a", "a-", "a.yaml", "a/x", "a0", "ab/x", "b/c-d", "b/c/x", "b/c0", "b.x/y"}
	f := setup(t)
	files := map[string]string{}
	for _, n := range names[1:] {
		files[n] = "1\n"
	}
	want := f.MustCommit("git", files)
	for i := range names[1:] {
		n := names[1+(i*7)%(len(names)-1)]
		f.pushOne(t, "main", commit(n, "1\n"))
	}
	wantEqual(t, "tree", f.Must("rev-parse", "main^{tree}"), f.Must("rev-parse", want+"^{tree}"))
}

func TestTreeReads(t *testing.T) {
	f := setup(t)
	ctx := t.Context()
	empty, err := f.repo.Tree(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "commit of nothing", empty.Commit(), "")
	if entries, err := empty.List(ctx, ""); err != nil || len(entries) != 0 {
		t.Errorf("listing nothing: %v, %v", entries, err)
	}
	head := f.MustCommitModes("main", map[string]string{"ns/a.yaml": "a: 1\n", "ns/run": "x\n", "ns/link": "a.yaml", "f": "1\n"},
		map[string]string{"ns/run": "100755", "ns/link": "120000"})
	tree, err := f.repo.Tree(ctx, "main")
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "commit", tree.Commit(), head)
	entries, err := tree.List(ctx, "ns")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]git.Entry{
		{Name: "a.yaml", Kind: git.KindFile, Hash: git.BlobHash([]byte("a: 1\n"))},
		{Name: "link", Kind: git.KindSymlink, Hash: git.BlobHash([]byte("a.yaml"))},
		{Name: "run", Kind: git.KindExecutable, Hash: git.BlobHash([]byte("x\n"))},
	}, entries); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	content, err := tree.Read(ctx, "ns/a.yaml")
	wantEqual(t, "content", string(content), "a: 1\n")
	hash, err2 := tree.Hash(ctx, "ns/a.yaml")
	wantEqual(t, "hash", hash, git.BlobHash([]byte("a: 1\n")))
	if err != nil || err2 != nil {
		t.Error(err, err2)
	}
	for _, path := range []string{"nope", "ns/nope", "f/below", "nope/x/y"} {
		if _, err := tree.Read(ctx, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Read(%s): %v, want ErrNotExist", path, err)
		}
	}
	_, err = tree.Read(ctx, "ns")
	wantNotRegular(t, err, "ns", git.KindDirectory)
	_, err = tree.List(ctx, "f")
	wantNotRegular(t, err, "f", git.KindFile)
	if _, err = tree.List(ctx, "nope"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("List of nothing: %v", err)
	}

	// A snapshot stays one.
	f.pushOne(t, "main", commit("ns/a.yaml", "a: 2\n"))
	content, _ = tree.Read(ctx, "ns/a.yaml")
	wantEqual(t, "content of the snapshot", string(content), "a: 1\n")
}

// With the filter capability files are fetched when they are needed, and together
// when that is said before.
func TestG1FilesAreFetchedWhenNeeded(t *testing.T) {
	for _, offered := range []string{"true", "false"} {
		t.Run("uploadpack.allowFilter="+offered, func(t *testing.T) {
			f := setup(t)
			if err := f.Configure(t.Context(), "uploadpack.allowFilter", offered); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"big": strings.Repeat("0123456789", 10000)}
			for _, n := range []string{"a", "b", "c"} {
				files["d/"+n] = n + "\n"
			}
			f.MustCommit("main", files)
			tree, err := f.repo.Tree(t.Context(), "main")
			if err != nil {
				t.Fatal(err)
			}
			f.server.Requests()
			if err := tree.Prefetch(t.Context(), "d/a", "d/b", "d/c", "nope"); err != nil {
				t.Fatal(err)
			}
			for _, n := range []string{"a", "b", "c"} {
				content, err := tree.Read(t.Context(), "d/"+n)
				if err != nil {
					t.Fatal(err)
				}
				wantEqual(t, n, string(content), n+"\n")
			}
			want := []gitserver.Request{{Method: "POST", Path: "/repo.git/git-upload-pack", Status: 200}}
			if offered == "false" {
				want = nil // they came with the tree
			}
			if diff := cmp.Diff(want, f.server.Requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			f.pushOne(t, "main", commit("d/a", "2\n"))
			wantEqual(t, "neighbour", len(f.MustShow("main", "big")), 100000)
		})
	}
}

// A cache that is far too small costs requests, never correctness.
func TestEvictedObjectsAreFetchedAgain(t *testing.T) {
	f := setup(t)
	files := map[string]string{}
	for _, d := range []string{"a", "b", "c", "d"} {
		for _, n := range []string{"1", "2", "3"} {
			files[d+"/"+n+"/f"] = d + n + "\n"
		}
	}
	f.MustCommit("main", files)
	var err error
	f.repo, err = git.NewRepository(git.Config{URL: f.URL, AllowInsecureHTTP: true, CacheBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.repo.Close)
	for _, d := range []string{"a", "b", "c", "d"} {
		f.pushOne(t, "main", commit(d+"/2/f", "new\n"))
	}
	wantEqual(t, "files", len(strings.Split(f.Must("ls-tree", "-r", "--name-only", "main"), "\n")), 12)
	wantEqual(t, "commits", f.count(t, "main"), 5)
	wantEqual(t, "content", f.MustShow("main", "d/2/f")+f.MustShow("main", "d/3/f"), "new\nd3\n")
}
