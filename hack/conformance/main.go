// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance proves that pkg/storage/bolt passes every test that etcd3
// passes.
//
// With -update it runs etcd3's own tests, those that run the suite in
// k8s.io/apiserver/pkg/storage/testing, of the version that go.mod names, and
// records the names of their leaves. Without, it runs all tests of
// pkg/storage/bolt and compares: each recorded leaf must have run and must not
// have been skipped. Arguments go to go test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

const (
	suitePackage = "k8s.io/apiserver/pkg/storage/testing"

	etcd3Package = "k8s.io/apiserver/pkg/storage/etcd3"
	ourPackage   = "github.com/kommit-dev/kommit/pkg/storage/bolt"

	// The storage behind a watch cache: that one's own tests, and ours.
	cacherPackage     = "k8s.io/apiserver/pkg/storage/cacher"
	watchcachePackage = ourPackage + "/watchcache"
)

func main() {
	update := flag.Bool("update", false, "record the leaves of etcd3's tests")
	data := flag.String("data", "pkg/storage/bolt/testdata", "folder of the recorded names and the table of replacements")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := compare
	if *update {
		run = record
	}
	if err := run(ctx, *data, flag.Args(), os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, errNotConformant) { // that has been said in detail
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

// record writes down what etcd3's tests consist of.
func record(ctx context.Context, dir string, args []string, out, log io.Writer) error {
	etcd3, err := loadSources(ctx, etcd3Package)
	if err != nil {
		return err
	}
	suite, own := etcd3.split()
	ran, err := goTest(ctx, etcd3Package, append([]string{"-count=1", "-run=" + anyOf(suite)}, args...), log)
	if err != nil {
		return err
	}
	r := recording{version: etcd3.version, leaves: ran.passed().withoutRangeStream(), own: own}
	if err := r.write(dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "recorded %d leaves and %d tests of etcd3's own parts at %s\n", len(r.leaves), len(r.own), r.version)
	return nil
}

var errNotConformant = errors.New("pkg/storage/bolt does not run what etcd3 runs")

// compare runs our tests and judges them by the recording.
func compare(ctx context.Context, dir string, args []string, out, log io.Writer) error {
	recorded, err := readRecording(dir)
	if err != nil {
		return err
	}
	table, err := readReplacements(dir)
	if err != nil {
		return err
	}
	var all []sources
	for _, pkg := range []string{etcd3Package, ourPackage, cacherPackage, watchcachePackage} {
		s, err := loadSources(ctx, pkg)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	ran, failed := goTest(ctx, ourPackage, args, log)
	if failed != nil && len(ran) == 0 {
		return failed // it does not build
	}
	v := judge(recorded, table, ran)
	v.checkVersion(recorded, all[0])
	v.checkFunctions(all[0], all[1], ourPackage)
	v.checkFunctions(all[2], all[3], watchcachePackage)
	v.print(out)
	if failed != nil {
		return failed
	}
	if !v.ok() {
		return errNotConformant
	}
	return nil
}

func sorted(names map[string]bool) []string {
	var out []string
	for name := range names {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
