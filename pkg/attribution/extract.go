// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// outcome is what became of an event, a metric label.
type outcome string

const (
	// madeFacts: it says who wrote something.
	madeFacts outcome = "fact"
	// outOfScope: not a completed, successful, mutating request, or one without object
	// (C6).
	outOfScope outcome = "out_of_scope"
	// dryRun: nothing was persisted.
	dryRun outcome = "dry_run"
	// noChange: an update that changed nothing.
	noChange outcome = "no_change"
	// noBody: it would have made facts, had the policy recorded the response.
	noBody outcome = "no_body"
)

// facts appends what the event says to list (C6, C7).
func (e *event) facts(list []Fact) ([]Fact, outcome) {
	if e.stage != string(auditv1.StageResponseComplete) || e.code < 200 || e.code > 299 {
		return list, outOfScope
	}
	username := e.user
	if e.impersonated != "" {
		username = e.impersonated
	}
	evicts := e.verb == verbCreate && e.ref.subresource == "eviction"
	deletes := e.verb == verbDelete || e.verb == verbDeleteCollection || evicts
	switch {
	case username == "" || e.ref.resource == "":
		return list, outOfScope
	case !deletes && e.verb != verbCreate && e.verb != verbUpdate && e.verb != verbPatch:
		return list, outOfScope
	case deletes && !evicts && e.ref.subresource != "":
		return list, outOfScope
	case e.isDryRun(deletes, evicts):
		return list, dryRun
	}
	f := Fact{
		Username:    username,
		Verb:        e.verb,
		Group:       e.ref.group,
		Resource:    e.ref.resource,
		Subresource: e.ref.subresource,
		Namespace:   e.ref.namespace,
		Name:        e.ref.name,
		Time:        e.received,
		Completed:   e.completed,
	}
	switch {
	case e.verb == verbDeleteCollection:
		return e.collectionFacts(list, f)
	case deletes:
		f.Verb, f.Subresource = verbDelete, ""
		return e.deletionFacts(list, f)
	}
	return e.writeFacts(list, f)
}

// isDryRun reads the query as kube-apiserver does: a delete that has a body takes
// its options from there alone, an eviction may carry them in both places.
func (e *event) isDryRun(deletes, evicts bool) bool {
	if deletes && e.request.known {
		return e.request.dryRun || evicts && e.query().Has("dryRun")
	}
	return e.query().Has("dryRun")
}

// query is that of the request; empty when the URI makes no sense.
func (e *event) query() url.Values {
	_, query, found := strings.Cut(e.requestURI, "?")
	if !found {
		return nil
	}
	values, _ := url.ParseQuery(query) // kube-apiserver, too, takes what parses
	return values
}

// writeFacts are those of create, update and patch: one version (C7).
func (e *event) writeFacts(list []Fact, f Fact) ([]Fact, outcome) {
	if !e.response.known {
		if e.ref.subresource != "" && e.ref.subresource != "status" && e.ref.subresource != "scale" {
			return list, outOfScope // such as exec, which answers with no object
		}
		return list, noBody
	}
	m := e.response.meta()
	switch {
	case e.response.isStatus() || m.uid == "" || m.resourceVersion == "":
		return list, outOfScope // such as a review or a binding, which is no stored object
	case e.verb == verbUpdate && e.ref.resourceVersion == m.resourceVersion:
		return list, noChange
	}
	f.UID, f.ResourceVersion = m.uid, m.resourceVersion
	if m.name != "" { // generateName
		f.Namespace, f.Name = m.namespace, m.name
	}
	switch {
	case e.verb == verbCreate && e.ref.subresource == "",
		e.verb != verbCreate && e.code == 201,
		e.verb == verbUpdate && e.ref.resourceVersion != "":
		f.Evidence = Proven
	case e.tookFields(m):
		f.Evidence = Likely
	default:
		f.Evidence = Possible
	}
	return append(list, f), madeFacts
}

// tookFields reports whether the managedFields say that this request's manager took
// a field while the request ran, and nobody else did as late.
func (e *event) tookFields(m *objectMeta) bool {
	manager := e.fieldManager()
	from := e.received.Truncate(time.Second)
	took := false
	for _, entry := range m.managers {
		switch {
		case entry.time.Before(from):
		case entry.manager != manager || entry.subresource != e.ref.subresource:
			return false
		case !entry.time.After(e.completed):
			took = true
		}
	}
	return took
}

// fieldManager is the manager's name as kube-apiserver derives it: the parameter,
// else the program's name in the user agent.
func (e *event) fieldManager() string {
	if manager := e.query().Get("fieldManager"); manager != "" {
		return manager
	}
	const longest = 128
	program, _, _ := strings.Cut(e.userAgent, "/")
	var b strings.Builder
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > longest {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// deletionFacts are those of delete and eviction: the object's end, by uid where
// the response names it, else by name.
func (e *event) deletionFacts(list []Fact, f Fact) ([]Fact, outcome) {
	m := e.response.meta()
	switch {
	case m.uid != "" && e.repeats(m):
		return list, noChange
	case m.uid != "":
		f.UID, f.ResourceVersion, f.Evidence = m.uid, m.resourceVersion, Likely
	case !e.response.known && !e.request.known:
		return list, noBody // it may have been a dry run, too
	case f.Name == "":
		return list, outOfScope
	default:
		f.Evidence = Possible
	}
	return append(list, f), madeFacts
}

// collectionFacts are those of deletecollection: the end of each listed object, or
// of whatever is in the scope when the list was not recorded.
func (e *event) collectionFacts(list []Fact, f Fact) ([]Fact, outcome) {
	items, ok := e.response.list()
	if !ok && !e.request.known && !e.response.known {
		return list, noBody // it may have been a dry run, too
	}
	if !ok {
		q := e.query()
		f.Name, f.Evidence = "", Possible
		f.LabelSelector, f.FieldSelector = q.Get("labelSelector"), q.Get("fieldSelector")
		return append(list, f), madeFacts
	}
	f.Evidence = Likely
	for i := range items {
		m := &items[i]
		if m.uid == "" || !m.deletionAsked.IsZero() { // the list is from before the deletions
			continue
		}
		f.UID, f.ResourceVersion, f.Namespace, f.Name = m.uid, m.resourceVersion, m.namespace, m.name
		list = append(list, f)
	}
	return list, madeFacts
}

// repeats reports whether the deletion had been asked for before this request came
// (C4).
func (e *event) repeats(m *objectMeta) bool {
	return !m.deletionAsked.IsZero() && m.deletionAsked.Before(e.received.Truncate(time.Second))
}
