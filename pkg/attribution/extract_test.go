// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// uids of testdata/events.
const (
	uid1 = "6f1b2c3d-0000-4000-8000-000000000001"
	uid2 = "6f1b2c3d-0000-4000-8000-000000000002"
	uid3 = "6f1b2c3d-0000-4000-8000-000000000003"
)

// readEvent reads testdata/events/<name>.json.
func readEvent(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// eventList wraps events as kube-apiserver posts them.
func eventList(events ...[]byte) []byte {
	return fmt.Appendf(nil, `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[%s]}`, bytes.Join(events, []byte(",")))
}

// decode returns the facts of a body and what became of its events.
func decode(t testing.TB, body []byte) ([]Fact, []outcome) {
	t.Helper()
	var s scanner
	s.reset(bytes.NewReader(body))
	var facts []Fact
	var outcomes []outcome
	err := s.eventList(DefaultMaxEventBytes, func(e *event) error {
		var o outcome
		facts, o = e.facts(facts)
		outcomes = append(outcomes, o)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return facts, outcomes
}

// describe writes a fact in one line; uids are shortened to their last digit.
func describe(f Fact) string {
	resource := f.Resource
	if f.Group != "" {
		resource += "." + f.Group
	}
	if f.Subresource != "" {
		resource += "/" + f.Subresource
	}
	uid := string(f.UID)
	line := fmt.Sprintf("%s %s %s %s/%s uid=%s rv=%s %s", f.Username, f.Verb, resource, f.Namespace, f.Name, uid[max(0, len(uid)-1):], f.ResourceVersion, f.Evidence)
	if f.LabelSelector != "" {
		line += " -l " + f.LabelSelector
	}
	return line
}

// TestFactsOfEvents is C6 and C7 over events as kube-apiserver 1.37 writes them.
func TestFactsOfEvents(t *testing.T) {
	tests := []struct {
		event   string
		outcome outcome
		facts   []string
	}{
		{"create", madeFacts, []string{"alice create configmaps shop/settings uid=1 rv=4101 proven"}},
		{"create-generate-name", madeFacts, []string{"alice create configmaps shop/settings-x7k2p uid=1 rv=4101 proven"}},
		{"create-dry-run", dryRun, nil},
		{"create-dry-run-encoded", dryRun, nil},
		{"create-conflict", outOfScope, nil},
		{"update", madeFacts, []string{"alice update configmaps shop/settings uid=1 rv=4102 proven"}},
		{"update-no-change", noChange, nil},
		{"update-unconditional", madeFacts, []string{"alice update configmaps shop/settings uid=1 rv=4103 likely"}},
		{"update-conflict", outOfScope, nil},
		{"patch-merge", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4104 likely"}},
		{"patch-json", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4105 likely"}},
		{"patch-strategic-edit", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4106 likely"}},
		{"patch-removes-only", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4107 possible"}},
		{"patch-no-change", madeFacts, []string{"bob patch configmaps shop/settings uid=1 rv=4104 possible"}},
		{"patch-no-managed-fields", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4108 possible"}},
		{"patch-two-managers-in-one-second", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4109 possible"}},
		{"apply-creates", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4110 proven"}},
		{"apply-server-side", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4111 likely"}},
		{"apply-by-user-agent", madeFacts, []string{"system:serviceaccount:flux-system:kustomize-controller patch configmaps shop/settings uid=1 rv=4112 likely"}},
		{"impersonated", madeFacts, []string{"carol patch configmaps shop/settings uid=1 rv=4113 likely"}},
		{"as-table", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4114 likely"}},
		{"as-partial-metadata", madeFacts, []string{"alice patch configmaps shop/settings uid=1 rv=4115 likely"}},
		{"scale-patch", madeFacts, []string{"alice patch deployments.apps/scale shop/web uid=2 rv=4200 possible"}},
		{"scale-update", madeFacts, []string{"alice update deployments.apps/scale shop/web uid=2 rv=4201 proven"}},
		{"status-update", madeFacts, []string{"system:serviceaccount:kube-system:deployment-controller update deployments.apps/status shop/web uid=2 rv=4202 proven"}},
		{"delete-background", madeFacts, []string{"alice delete configmaps shop/settings uid=1 rv= likely"}},
		{"delete-dry-run-body", dryRun, nil},
		{"delete-dry-run-query", dryRun, nil},
		{"delete-query-overruled-by-body", madeFacts, []string{"alice delete configmaps shop/settings uid=1 rv= likely"}},
		{"delete-foreground", madeFacts, []string{"alice delete configmaps shop/settings uid=1 rv=4120 likely"}},
		{"delete-again", noChange, nil},
		{"delete-pod-gracefully", madeFacts, []string{"alice delete pods shop/web-0 uid=3 rv=4300 likely"}},
		{"delete-custom-without-uid", madeFacts, []string{"alice delete widgets.example.com shop/w uid= rv= possible"}},
		{"evict", madeFacts, []string{"alice delete pods shop/web-0 uid= rv= possible"}},
		{"evict-dry-run", dryRun, nil},
		{"bind", outOfScope, nil},
		{"deletecollection", madeFacts, []string{
			"alice deletecollection configmaps shop/a uid=1 rv=4001 likely",
			"alice deletecollection configmaps shop/b uid=2 rv=4002 likely",
		}},
		{"deletecollection-table", madeFacts, []string{
			"alice deletecollection configmaps shop/a uid=1 rv=4001 likely",
			"alice deletecollection configmaps shop/b uid=2 rv=4002 likely",
		}},
		{"deletecollection-no-list", madeFacts, []string{"alice deletecollection configmaps shop/ uid= rv= possible -l app=web"}},
		{"deletecollection-dry-run", dryRun, nil},
		{"level-metadata", noBody, nil},
		{"level-metadata-delete", noBody, nil},
		{"truncated", noBody, nil},
		{"aggregated", noBody, nil},
		{"stage-received", outOfScope, nil},
		{"stage-panic", outOfScope, nil},
		{"get", outOfScope, nil},
		{"forbidden", outOfScope, nil},
		{"exec", outOfScope, nil},
		{"review", outOfScope, nil},
		{"misleading-names", madeFacts, []string{"alice create widgets.example.com shop/w uid=2 rv=4400 proven"}},
	}
	tested := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.event, func(t *testing.T) {
			facts, outcomes := decode(t, eventList(readEvent(t, tt.event)))
			var got []string
			for _, f := range facts {
				got = append(got, describe(f))
				if f.Time.IsZero() || !f.Completed.After(f.Time) {
					t.Errorf("times are %v, %v", f.Time, f.Completed)
				}
			}
			if diff := cmp.Diff(tt.facts, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]outcome{tt.outcome}, outcomes); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
		tested[tt.event] = true
	}
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); !tested[name] {
			t.Errorf("%s is not tested", file)
		}
	}
}

// TestAuditIDIsNoKey: two requests of one Audit-ID keep their own authors (C7).
func TestAuditIDIsNoKey(t *testing.T) {
	one := readEvent(t, "create")
	two := bytes.ReplaceAll(bytes.ReplaceAll(one, []byte(`"alice"`), []byte(`"bob"`)), []byte(uid1), []byte(uid2))
	facts, _ := decode(t, eventList(one, two))
	if len(facts) != 2 || facts[0].Username != "alice" || facts[0].UID != uid1 || facts[1].Username != "bob" || facts[1].UID != uid2 {
		t.Errorf("got %v", facts)
	}
}

// TestBodiesAreNotKept: of a Secret only its keys get into a fact (C5).
func TestBodiesAreNotKept(t *testing.T) {
	const payload = "cGF5bG9hZA=="
	event := bytes.ReplaceAll(readEvent(t, "patch-merge"), []byte(`"slow"`), []byte(`"`+payload+`"`))
	if !bytes.Contains(event, []byte(payload)) {
		t.Fatal("the event has no payload")
	}
	facts, _ := decode(t, eventList(event))
	if len(facts) != 1 {
		t.Fatalf("got %d facts", len(facts))
	}
	if text := fmt.Sprintf("%+v", facts); strings.Contains(text, payload) {
		t.Errorf("the body is in the fact: %s", text)
	}
}

func TestTimesOfFacts(t *testing.T) {
	facts, _ := decode(t, eventList(readEvent(t, "create")))
	want := time.Date(2026, 11, 4, 10, 15, 30, 120431000, time.UTC)
	if !facts[0].Time.Equal(want) || !facts[0].Completed.Equal(want.Add(11446*time.Microsecond)) {
		t.Errorf("got %v, %v", facts[0].Time, facts[0].Completed)
	}
}
