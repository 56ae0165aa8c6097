// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const (
	webPath  = "a/shop/configmaps/web.yaml"
	gonePath = "a/shop/configmaps/gone.yaml"
)

func edit(author string, sequence int, object string, version uint64) Edit {
	return Edit{
		Token: author + "-" + string(rune('0'+sequence)), Author: author, Sequence: sequence, Outcome: Accepted,
		Object: Object{Namespace: "shop", Name: object}, ResourceVersion: version,
	}
}

func deletion(author string, sequence int, object string) Edit {
	e := edit(author, sequence, object, 0)
	e.Delete = true
	return e
}

func commit(hash, author, message, path string, tokens ...string) Commit {
	c := Commit{Hash: hash, Author: author, Message: message, Added: map[string][]string{}}
	if path != "" {
		c.Changes = 1
	}
	for _, token := range tokens {
		c.Added[path] = append(c.Added[path], token+": "+token)
	}
	return c
}

func removal(hash, author, path string) Commit {
	return Commit{Hash: hash, Author: author, Message: "Delete", Deleted: []string{path}, Changes: 1}
}

func finished(name, reason, hash string) v1alpha1.CommitRequest {
	return v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: "5"},
		Status: v1alpha1.CommitRequestStatus{
			Commit: hash, CompletionTime: &metav1.Time{Time: time.Unix(1_000_000, 0)},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reason},
				{Type: v1alpha1.ConditionCaughtUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCaughtUp},
			},
		},
	}
}

func save(author string, sequence int, name, message string) Save {
	return Save{Object: Object{Namespace: "shop", Name: name}, Author: author, Sequence: sequence, Message: message, Acknowledged: true}
}

// sound is what alice and bob did, and what is there of it: nothing is wrong.
func sound() Evidence {
	return Evidence{
		Places: []Place{{Namespace: "shop", Path: "a"}},
		Edits: []Edit{
			edit("alice", 1, "web", 10), edit("bob", 1, "web", 12), edit("alice", 2, "web", 14),
			// Made by alice, edited and deleted by bob, in one window of his.
			edit("alice", 3, "gone", 20), edit("bob", 2, "gone", 21), deletion("bob", 3, "gone"),
			// Made and deleted by alice in one window.
			edit("alice", 4, "never", 30), deletion("alice", 5, "never"),
			{Token: "bob-4", Author: "bob", Object: Object{"shop", "web"}, Sequence: 4, Outcome: Refused},
		},
		Saves: []Save{
			save("alice", 6, "named", "Alice's web"), save("bob", 5, "empty", "Nothing"),
			save("bob", 6, "none", "Nothing at all"), {Object: Object{"shop", "refused"}, Author: "bob", Message: "Refused"},
		},
		Requests: []v1alpha1.CommitRequest{
			finished("named", v1alpha1.ReasonCommitted, "c3"), finished("empty", v1alpha1.ReasonEmptyCommit, "c6"),
			finished("none", v1alpha1.ReasonNoOpenWindow, ""),
		},
		Cluster: map[string]map[string]string{webPath: {"alice-1": "alice-1", "bob-1": "bob-1", "alice-2": "alice-2"}},
		Repository: Repository{
			Files: map[string]map[string]string{webPath: {"alice-1": "alice-1", "bob-1": "bob-1", "alice-2": "alice-2"}},
			Commits: []Commit{
				commit("c0", "alice", "Create", webPath, "alice-1"),
				commit("c1", "bob", "Update", webPath, "bob-1"),
				commit("c2", "alice", "Create", gonePath, "alice-3"),
				commit("c3", "alice", "Alice's web", webPath, "alice-2"),
				removal("c5", "bob", gonePath),
				commit("c6", "bob", "Nothing", ""),
			},
		},
	}
}

func TestASoundHistoryHasNoFindings(t *testing.T) {
	if found := Verify(sound()); len(found) > 0 {
		t.Errorf("findings: %v", found)
	}
}

// What the proof is there to find is found, as what it is.
func TestEachWrongIsFound(t *testing.T) {
	commits := func(e *Evidence) []Commit { return e.Repository.Commits }
	tests := []struct {
		name   string
		tamper func(*Evidence)
		want   []Kind
	}{
		{"a lost edit", func(e *Evidence) { commits(e)[1].Added = nil }, []Kind{Lost}},
		{"a doubled edit", func(e *Evidence) {
			commits(e)[1].Added[webPath] = append(commits(e)[1].Added[webPath], "alice-1: alice-1")
		}, []Kind{Doubled, Misattributed}},
		{"a doubled edit in its author's name", func(e *Evidence) {
			commits(e)[2].Added[webPath] = []string{"alice-1: alice-1"}
		}, []Kind{Doubled}},
		{"a refused edit that is there", func(e *Evidence) { commits(e)[1].Added[webPath] = append(commits(e)[1].Added[webPath], "bob-4: bob-4") }, []Kind{Doubled}},
		{"a wrong author", func(e *Evidence) { commits(e)[1].Author = "alice" }, []Kind{Misattributed}},
		{"another author around a restart of kube-apiserver", func(e *Evidence) {
			e.Edits[1].Blind, commits(e)[1].Author = true, "alice"
		}, []Kind{Misattributed}},
		{"an edit lost around a restart of kube-apiserver, of an object that is there", func(e *Evidence) {
			e.Edits[1].Blind, commits(e)[1].Added = true, nil
		}, []Kind{Lost}},
		{"no author around a restart of kube-apiserver", func(e *Evidence) {
			e.Edits[1].Blind, commits(e)[1].Author = true, nobody
		}, nil},
		{"a deletion that a comparison found around a restart of kube-apiserver", func(e *Evidence) {
			e.Edits[5].Blind, commits(e)[4].Author = true, committer
		}, nil},
		{"a deletion that a comparison found although it could be seen", func(e *Evidence) { commits(e)[4].Author = committer }, []Kind{Misattributed}},
		{"no author", func(e *Evidence) { commits(e)[0].Author = "unknown (attribution unresolved)" }, []Kind{Misattributed}},
		{"swapped order", func(e *Evidence) { commits(e)[0], commits(e)[1] = commits(e)[1], commits(e)[0] }, []Kind{Disordered}},
		{"an edit before a deletion by another that left no trace", func(e *Evidence) {
			commits(e)[2].Added, commits(e)[4].Deleted = nil, nil
		}, []Kind{Lost}},
		{"a lost edit of the deleter behind which another is", func(e *Evidence) {
			e.Edits = append(e.Edits, edit("bob", 7, "gone", 19), edit("alice", 7, "gone", 18))
			commits(e)[0].Added[gonePath] = []string{"alice-7: alice-7"}
		}, []Kind{Lost}},
		{"a lost deletion", func(e *Evidence) { commits(e)[4].Deleted = nil }, []Kind{Lost}},
		{"a doubled deletion", func(e *Evidence) { commits(e)[5].Deleted = []string{gonePath} }, []Kind{Doubled}},
		{"a deletion in another's name", func(e *Evidence) { commits(e)[4].Author = "alice" }, []Kind{Misattributed}},
		{"a deletion before the last edit", func(e *Evidence) { commits(e)[2], commits(e)[4] = commits(e)[4], commits(e)[2] }, []Kind{Disordered}},
		{"a deletion by nobody", func(e *Evidence) { commits(e)[3].Deleted = []string{webPath} }, []Kind{Lost}},
		{"an edit in another file", func(e *Evidence) {
			commits(e)[1].Added = map[string][]string{gonePath: commits(e)[1].Added[webPath]}
		}, []Kind{Different}},
		{"a file too many", func(e *Evidence) { e.Repository.Files[gonePath] = nil }, []Kind{Different}},
		{"a file too few", func(e *Evidence) { delete(e.Repository.Files, webPath) }, []Kind{Different}},
		{"other content", func(e *Evidence) { e.Repository.Files[webPath] = map[string]string{"alice-1": "alice-1"} }, []Kind{Different}},
		{"a request without an end", func(e *Evidence) { e.Requests[0].Status.CompletionTime = nil }, []Kind{Unresolved}},
		{"an acknowledged request that is gone", func(e *Evidence) { e.Requests = e.Requests[:2] }, []Kind{Lost}},
		{"a message without its request", func(e *Evidence) { commits(e)[0].Message = "Refused" }, []Kind{Resolution}},
		{"a message on two commits", func(e *Evidence) { commits(e)[0].Message = "Alice's web" }, []Kind{Resolution}},
		{"another message", func(e *Evidence) { commits(e)[3].Message = "Update" }, []Kind{Resolution}},
		{"a commit that is not on the branch", func(e *Evidence) { e.Requests[0].Status.Commit = "c9" }, []Kind{Resolution}},
		{"two requests with one commit", func(e *Evidence) {
			e.Requests[1] = finished("empty", v1alpha1.ReasonCommitted, "c3")
		}, []Kind{Misattributed, Resolution}},
		{"a request that found nothing, and its commit", func(e *Evidence) { commits(e)[0].Message = "Nothing at all" }, []Kind{Resolution}},
		{"an empty commit that is none", func(e *Evidence) { commits(e)[5].Changes = 1 }, []Kind{Resolution}},
		{"a request that failed without cause", func(e *Evidence) { e.Requests[2] = finished("none", v1alpha1.ReasonCommitFailed, "") }, []Kind{Resolution}},
		{"a request that nobody made", func(e *Evidence) {
			e.Requests = append(e.Requests, finished("odd", v1alpha1.ReasonNoOpenWindow, ""))
		}, []Kind{Resolution}},
		{"an edit before a save that is in a later commit", func(e *Evidence) {
			commits(e)[5].Author, e.Saves[1].Author = "alice", "alice"
			commits(e)[5].Added[gonePath], commits(e)[2].Added = commits(e)[2].Added[gonePath], nil
			commits(e)[5], commits(e)[4] = commits(e)[4], commits(e)[5]
		}, []Kind{Disordered}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := sound()
			test.tamper(&e)
			kinds := map[Kind]bool{}
			for _, f := range Verify(e) {
				kinds[f.Kind] = true
				t.Log(f)
			}
			if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

// A request has one end, also as it is seen over restarts.
func TestAnEndIsTheOnlyOne(t *testing.T) {
	tests := []struct {
		name string
		next func(*v1alpha1.CommitRequest)
		want int
	}{
		{"the same again", func(*v1alpha1.CommitRequest) {}, 0},
		{"another condition", func(r *v1alpha1.CommitRequest) {
			r.Status.Conditions[1].Status = metav1.ConditionFalse
		}, 0},
		{"another commit", func(r *v1alpha1.CommitRequest) { r.Status.Commit = "c1" }, 1},
		{"another reason", func(r *v1alpha1.CommitRequest) { r.Status.Conditions[0].Reason = v1alpha1.ReasonEmptyCommit }, 1},
		{"another time", func(r *v1alpha1.CommitRequest) { r.Status.CompletionTime = &metav1.Time{Time: time.Unix(2_000_000, 0)} }, 1},
		{"none any more", func(r *v1alpha1.CommitRequest) { r.Status.CompletionTime = nil }, 1},
		{"an older version", func(r *v1alpha1.CommitRequest) { r.ResourceVersion = "4" }, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var requests Requests
			requests.Observe(finished("named", v1alpha1.ReasonCommitted, "c3"))
			next := finished("named", v1alpha1.ReasonCommitted, "c3")
			next.ResourceVersion = "6"
			test.next(&next)
			requests.Observe(next)
			if found := requests.Findings(); len(found) != test.want {
				t.Errorf("findings: %v, want %d", found, test.want)
			}
		})
	}
	var requests Requests
	requests.Observe(finished("named", v1alpha1.ReasonCommitted, "c3"))
	requests.observeAll("shop", nil)
	if found := requests.Findings(); len(found) != 1 {
		t.Errorf("a request that is gone: findings %v, want one", found)
	}
}
