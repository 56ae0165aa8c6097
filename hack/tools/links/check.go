// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
)

// Broken is a link that points to nothing.
type Broken struct {
	File        string
	Line        int
	Destination string
	Reason      string
}

func (b Broken) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", b.File, b.Line, b.Destination, b.Reason)
}

// check reads the Markdown files among files, which are all files of fsys that
// a link may point to, and says how many relative links it followed and which
// of them are broken.
func check(fsys fs.FS, files []string) (checked int, broken []Broken, err error) {
	there := map[string]bool{".": true}
	pages := map[string]page{}
	for _, name := range files {
		there[name] = true
		for dir := path.Dir(name); !there[dir]; dir = path.Dir(dir) {
			there[dir] = true
		}
		if !markdown(name) {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return 0, nil, err
		}
		pages[name] = read(string(text))
	}
	for _, name := range files {
		for _, l := range pages[name].links {
			followed, reason := follow(name, l.destination, there, pages)
			if followed {
				checked++
			}
			if reason != "" {
				broken = append(broken, Broken{File: name, Line: l.line, Destination: l.destination, Reason: reason})
			}
		}
	}
	return checked, broken, nil
}

// markdown leaves out test data, whose links may be broken on purpose.
func markdown(name string) bool {
	return strings.EqualFold(path.Ext(name), ".md") && !strings.Contains("/"+name, "/testdata/")
}

// follow says whether the link is relative and, if it is broken, why.
func follow(from, destination string, there map[string]bool, pages map[string]page) (followed bool, reason string) {
	u, err := url.Parse(destination)
	if err != nil {
		return true, "not a URL"
	}
	if u.IsAbs() || u.Host != "" {
		return false, ""
	}
	target := from
	if u.Path != "" {
		if target = path.Join(path.Dir(from), u.Path); path.IsAbs(u.Path) {
			target = strings.TrimPrefix(path.Clean(u.Path), "/") // hosts show it from the top of the repository
		}
	}
	switch {
	case target == "":
		target = "."
	case !there[target]:
		return true, "no such file in the repository"
	}
	if u.Fragment != "" && markdown(target) && !pages[target].anchors[u.Fragment] {
		return true, "no such heading in " + target
	}
	return true, ""
}
