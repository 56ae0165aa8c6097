// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

var update = flag.Bool("update", false, "write what happens into the scenarios' \"> \" lines")

// TestScenarios plays testdata/*.txtar. The comment of an archive says which rule
// it shows; each of its files is a case of its own, played on a new engine, with
// what is expected of a command below it in lines that begin with "> ".
//
//	target [NAME] [idle=5m] [max=1h] [shared] [suspended]   SetTarget; NAME defaults to prod
//	remove [NAME]                                          RemoveTarget
//	change AUTHOR [-|+|.]OBJECT [bytes=N]                  Change; - deletes, + creates, . or nothing updates
//	request AUTHOR NAME [attach=Next] [timeout=5s] [idle=D] [max=2s] [message=M] [empty]
//	caughtup NAME | withdraw NAME                          by the request's name, which is its UID
//	resync OBJECT...                                       Resync
//	advance D                                              lets D pass, waking whenever NextWake says so
//	late D                                                 lets D pass without a wake; a negative D sets the clock back
//	wake | shutdown
//	nextwake | windows | binding AUTHOR [attach=Next]      what the read-only methods say
//	limit N                                                Config.MaxBytes; first command only
//
// AUTHOR "unresolved" is Unresolved and "nobody" the zero Author. All but limit
// take target=NAME. Times are counted from the beginning of the case.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if len(archive.Files) == 0 {
				t.Fatalf("%s: no case in it", path)
			}
			for i, file := range archive.Files {
				t.Run(strings.ReplaceAll(file.Name, " ", "_"), func(t *testing.T) {
					played := newScenario().play(t, string(file.Data))
					if *update {
						archive.Files[i].Data = []byte(played)
						return
					}
					if diff := cmp.Diff(string(file.Data), played); diff != "" {
						t.Errorf("%s: -expected +happened\n%s", path, diff)
					}
				})
			}
			if *update {
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type scenario struct {
	engine     *Engine
	start, now time.Time
	names      int
	limit      int64
}

func newScenario() *scenario {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &scenario{start: start, now: start}
	s.reset()
	return s
}

func (s *scenario) reset() {
	s.engine = New(Config{
		MaxBytes: s.limit,
		NewName: func(types.NamespacedName, Author) string {
			s.names++
			return fmt.Sprintf("w%d", s.names)
		},
	})
}

// play runs a script and returns it with what happened below each command.
func (s *scenario) play(t *testing.T, script string) string {
	t.Helper()
	var played strings.Builder
	for text := range strings.Lines(script) {
		text = strings.TrimSuffix(text, "\n")
		if strings.HasPrefix(text, "> ") {
			continue
		}
		played.WriteString(text + "\n")
		command, _, _ := strings.Cut(text, "#")
		if fields := strings.Fields(command); len(fields) > 0 {
			for _, happened := range s.run(t, fields[0], parseArguments(fields[1:])) {
				played.WriteString("> " + happened + "\n")
			}
		}
	}
	return played.String()
}

func (s *scenario) run(t *testing.T, command string, a arguments) []string {
	t.Helper()
	e := s.engine
	switch command {
	case "limit":
		s.limit = int64(a.number(t, a.word(t, 0)))
		s.reset()
		return nil
	case "target":
		return show(e.SetTarget(s.now, Target{
			Name:        targetName(a.wordOr(0, "prod")),
			IdleTimeout: a.duration(t, "idle", 5*time.Minute),
			MaxDuration: a.duration(t, "max", time.Hour),
			Shared:      a.flags["shared"],
			Suspended:   a.flags["suspended"],
		}))
	case "remove":
		return show(e.RemoveTarget(s.now, targetName(a.wordOr(0, "prod"))))
	case "change":
		c := parseChange(a.word(t, 1))
		c.Target, c.Author = a.target(), parseAuthor(a.word(t, 0))
		if size := a.options["bytes"]; size != "" {
			c.Manifest = make([]byte, a.number(t, size))
		}
		return show(e.Change(s.now, c))
	case "request":
		return show(e.Register(s.now, Request{
			RequestRef:          RequestRef{Namespace: "shop", Name: a.word(t, 1), UID: types.UID(a.word(t, 1))},
			Target:              a.target(),
			Author:              parseAuthor(a.word(t, 0)),
			Message:             a.options["message"],
			Attach:              v1alpha1.AttachPolicy(a.options["attach"]),
			AttachDeadline:      s.now.Add(a.duration(t, "timeout", 5*time.Second)),
			IdleTimeout:         a.duration(t, "idle", 0),
			MaxDuration:         a.duration(t, "max", 2*time.Second),
			WhenNothingToCommit: map[bool]v1alpha1.NothingToCommitPolicy{true: v1alpha1.NothingCommitEmpty}[a.flags["empty"]],
		}))
	case "caughtup":
		return show(e.CaughtUp(s.now, types.UID(a.word(t, 0))))
	case "withdraw":
		return show(e.Withdraw(s.now, types.UID(a.word(t, 0))))
	case "resync":
		var changes []Change
		for _, object := range a.words {
			c := parseChange(object)
			c.Target = a.target()
			changes = append(changes, c)
		}
		return show(e.Resync(s.now, a.target(), changes))
	case "wake":
		return show(e.Wake(s.now))
	case "shutdown":
		return show(e.Shutdown(s.now))
	case "late":
		s.now = s.now.Add(parseDuration(t, a.word(t, 0)))
		return nil
	case "advance":
		return s.advance(t, parseDuration(t, a.word(t, 0)))
	case "nextwake":
		if due, ok := e.NextWake(); ok {
			return []string{due.Sub(s.start).String()}
		}
		return []string{"never"}
	case "windows":
		return s.windows()
	case "binding":
		b := e.Binding(a.target(), parseAuthor(a.word(t, 0)), v1alpha1.AttachPolicy(a.options["attach"]))
		switch {
		case b.InProgress != nil:
			return []string{"in progress " + b.InProgress.Name}
		case b.Window != "":
			return []string{"window " + b.Window}
		}
		return []string{"waits"}
	}
	t.Fatalf("no such command: %s", command)
	return nil
}

// advance lets time pass as the shell does: it wakes when it was told to.
func (s *scenario) advance(t *testing.T, d time.Duration) []string {
	t.Helper()
	var happened []string
	end := s.now.Add(d)
	for {
		due, ok := s.engine.NextWake()
		if !ok || due.After(end) {
			break
		}
		if due.After(s.now) {
			s.now = due
		}
		effects := s.engine.Wake(s.now)
		if len(effects) == 0 {
			t.Fatalf("a wake at %s, as asked for, did nothing", s.now.Sub(s.start))
		}
		for _, effect := range show(effects) {
			happened = append(happened, fmt.Sprintf("@%s %s", s.now.Sub(s.start), effect))
		}
	}
	s.now = end
	return happened
}

func (s *scenario) windows() []string {
	var open []string
	for _, w := range s.engine.Windows() {
		text := fmt.Sprintf("%s %s %s", w.Name, w.Target.Name, showAuthor(w.Author))
		if w.Request != nil {
			text += " held by " + w.Request.Name
		}
		text += fmt.Sprintf(" opened @%s", w.Opened.Sub(s.start))
		if !w.Closes.IsZero() {
			text += fmt.Sprintf(" closes @%s", w.Closes.Sub(s.start))
		}
		open = append(open, text+": "+showChanges(w.Changes))
	}
	return open
}

func show(effects []Effect) []string {
	var lines []string
	for _, effect := range effects {
		switch e := effect.(type) {
		case Attached:
			lines = append(lines, fmt.Sprintf("attached %s to %s", e.Request.Name, e.Window))
		case CatchUp:
			lines = append(lines, fmt.Sprintf("catchup %s", e.Request.Name))
		case Closed:
			lines = append(lines, "closed "+showWrite(e.Write))
		case Discarded:
			lines = append(lines, "discarded "+showWrite(e.Write))
		case Resolved:
			lines = append(lines, fmt.Sprintf("resolved %s %s", e.Request.Name, e.Reason))
		}
	}
	return lines
}

func showWrite(w Write) string {
	var parts []string
	if w.Name != "" {
		parts = append(parts, w.Name)
	}
	parts = append(parts, showAuthor(w.Author), string(w.Cause))
	if w.Kind == EmptyWrite {
		parts = append(parts, "empty")
	}
	if w.Request != nil {
		parts = append(parts, "for "+w.Request.Name)
		if w.CutShort {
			parts = append(parts, "cut short")
		}
		if w.Request.Message != "" {
			parts = append(parts, strconv.Quote(w.Request.Message))
		}
	}
	text := strings.Join(parts, " ")
	if len(w.Changes) > 0 {
		text += ": " + showChanges(w.Changes)
	}
	return text
}

func showChanges(changes []Change) string {
	signs := map[Operation]string{Create: "+", Update: "", Delete: "-"}
	var objects []string
	for _, c := range changes {
		objects = append(objects, signs[c.Operation]+c.Object.Resource+"/"+c.Object.Name)
	}
	return strings.Join(objects, " ")
}

func showAuthor(a Author) string {
	switch {
	case a.Unresolved:
		return "unresolved"
	case a.Username == "":
		return "nobody"
	}
	return a.Username
}

func parseAuthor(text string) Author {
	switch text {
	case "unresolved":
		return Unresolved
	case "nobody":
		return Author{}
	}
	return Author{Username: text}
}

func parseChange(text string) Change {
	c := Change{Operation: Update, Manifest: []byte(text)}
	switch text[0] {
	case '+':
		c.Operation, text = Create, text[1:]
	case '-':
		c.Operation, c.Manifest, text = Delete, nil, text[1:]
	case '.':
		text = text[1:]
	}
	resource, name, _ := strings.Cut(text, "/")
	c.Object = Object{Resource: resource, Namespace: "shop", Name: name}
	return c
}

func targetName(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// arguments of a command: words, key=value options and flags.
type arguments struct {
	words   []string
	options map[string]string
	flags   map[string]bool
}

func parseArguments(fields []string) arguments {
	a := arguments{options: map[string]string{}, flags: map[string]bool{}}
	for _, field := range fields {
		key, value, isOption := strings.Cut(field, "=")
		switch {
		case isOption:
			a.options[key] = value
		case field == "shared" || field == "suspended" || field == "empty":
			a.flags[field] = true
		default:
			a.words = append(a.words, field)
		}
	}
	return a
}

func (a arguments) target() types.NamespacedName {
	if name := a.options["target"]; name != "" {
		return targetName(name)
	}
	return targetName("prod")
}

func (a arguments) word(t *testing.T, i int) string {
	t.Helper()
	if i >= len(a.words) {
		t.Fatalf("an argument is missing after %q", a.words)
	}
	return a.words[i]
}

func (a arguments) wordOr(i int, otherwise string) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return otherwise
}

func (a arguments) duration(t *testing.T, key string, otherwise time.Duration) time.Duration {
	t.Helper()
	if a.options[key] == "" {
		return otherwise
	}
	return parseDuration(t, a.options[key])
}

func (a arguments) number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseDuration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
