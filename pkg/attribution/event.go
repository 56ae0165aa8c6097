// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxItems bounds the objects of one response that are kept.
const maxItems = 200_000

// event is what is kept of an audit.k8s.io/v1 Event while it is read.
type event struct {
	level        string
	stage        string
	requestURI   string
	verb         string
	user         string
	impersonated string
	userAgent    string
	ref          objectRef
	code         int64
	request      deleteOptions
	response     response
	received     time.Time
	completed    time.Time
}

type objectRef struct {
	group, resource, subresource, namespace, name, resourceVersion string
}

// deleteOptions are those of a request object that is a DeleteOptions or an
// Eviction.
type deleteOptions struct {
	// known says that there was a request object.
	known  bool
	dryRun bool
}

// response holds the parts of a response object that say which objects were
// written, whichever shape the client had asked for.
type response struct {
	known            bool
	apiVersion, kind string
	object           objectMeta
	// details is the object of a Status.
	details objectMeta
	// items are those of a List, rows those of a Table.
	items, rows []objectMeta
}

type objectMeta struct {
	uid             types.UID
	resourceVersion string
	namespace, name string
	// deletionAsked is deletionTimestamp less the grace period: when the deletion was
	// first asked for, in whole seconds.
	deletionAsked time.Time
	managers      []managerTime
}

// managerTime is an entry of managedFields: when that manager last took a field, in
// whole seconds.
type managerTime struct {
	manager, subresource string
	time                 time.Time
}

// eventList reads an EventList, and calls handle for each event with one that is
// valid until handle returns. maxEvent bounds the size of each, in bytes.
func (s *scanner) eventList(maxEvent int64, handle func(*event) error) error {
	if s.peek() != '{' {
		return s.expected("an EventList")
	}
	var apiVersion, kind string
	err := s.members(func(key []byte) error {
		switch string(key) {
		case "apiVersion":
			return s.text(&apiVersion)
		case "kind":
			return s.text(&kind)
		case "items":
			if c := s.peek(); c != '[' && c != 'n' {
				return s.expected("a list of events")
			}
			return s.elements(func() error {
				if s.peek() != '{' {
					return s.expected("an event")
				}
				s.bound(maxEvent)
				var e event
				if err := s.event(&e); err != nil {
					return err
				}
				s.bound(maxEvent)
				return handle(&e)
			})
		}
		return s.skip()
	})
	if err == nil {
		err = s.ended()
	}
	if err == nil && (apiVersion != auditv1.SchemeGroupVersion.String() || kind != "EventList") {
		err = &UnsupportedKindError{APIVersion: apiVersion, Kind: kind}
	}
	return err
}

func (s *scanner) event(e *event) error {
	return s.members(func(key []byte) error {
		switch string(key) {
		case "level":
			return s.text(&e.level)
		case "stage":
			return s.text(&e.stage)
		case "requestURI":
			return s.text(&e.requestURI)
		case "verb":
			return s.text(&e.verb)
		case "user":
			return s.user(&e.user)
		case "impersonatedUser":
			return s.user(&e.impersonated)
		case "userAgent":
			return s.text(&e.userAgent)
		case "objectRef":
			return s.objectRef(&e.ref)
		case "responseStatus":
			return s.members(func(key []byte) error {
				if string(key) == "code" {
					return s.integer(&e.code)
				}
				return s.skip()
			})
		case "requestObject":
			return s.deleteOptions(&e.request)
		case "responseObject":
			return s.response(&e.response)
		case "requestReceivedTimestamp":
			return s.time(&e.received)
		case "stageTimestamp":
			return s.time(&e.completed)
		}
		return s.skip()
	})
}

func (s *scanner) user(username *string) error {
	return s.members(func(key []byte) error {
		if string(key) == "username" {
			return s.text(username)
		}
		return s.skip()
	})
}

func (s *scanner) objectRef(ref *objectRef) error {
	return s.members(func(key []byte) error {
		switch string(key) {
		case "apiGroup":
			return s.text(&ref.group)
		case "resource":
			return s.text(&ref.resource)
		case "subresource":
			return s.text(&ref.subresource)
		case "namespace":
			return s.text(&ref.namespace)
		case "name":
			return s.text(&ref.name)
		case "resourceVersion":
			return s.text(&ref.resourceVersion)
		}
		return s.skip()
	})
}

// deleteOptions reads dryRun of a DeleteOptions, and of the one in an Eviction. In
// any other object it means something else, or nothing.
func (s *scanner) deleteOptions(o *deleteOptions) error {
	o.known = s.peek() != 'n'
	dryRun := func() error {
		return s.elements(func() error {
			o.dryRun = true
			return s.skip()
		})
	}
	return s.members(func(key []byte) error {
		switch string(key) {
		case "dryRun":
			return dryRun()
		case "deleteOptions":
			return s.members(func(key []byte) error {
				if string(key) == "dryRun" {
					return dryRun()
				}
				return s.skip()
			})
		}
		return s.skip()
	})
}

func (s *scanner) response(r *response) error {
	r.known = s.peek() == '{'
	return s.members(func(key []byte) error {
		switch string(key) {
		case "apiVersion":
			return s.text(&r.apiVersion)
		case "kind":
			return s.text(&r.kind)
		case "metadata":
			return s.objectMeta(&r.object)
		case "details":
			return s.details(&r.details)
		case "items":
			return s.elements(func() error {
				return s.appendMeta(&r.items)
			})
		case "rows":
			return s.elements(func() error {
				return s.members(func(key []byte) error {
					if string(key) == "object" {
						return s.appendMeta(&r.rows)
					}
					return s.skip()
				})
			})
		}
		return s.skip()
	})
}

// details reads the object that a Status is about.
func (s *scanner) details(m *objectMeta) error {
	return s.members(func(key []byte) error {
		switch string(key) {
		case "uid":
			return s.text((*string)(&m.uid))
		case "name":
			return s.text(&m.name)
		}
		return s.skip()
	})
}

// appendMeta reads the metadata of an object within a response.
func (s *scanner) appendMeta(list *[]objectMeta) error {
	if len(*list) == maxItems {
		return s.fail(&TooLargeError{What: "number of objects in a response", Limit: maxItems})
	}
	*list = append(*list, objectMeta{})
	m := &(*list)[len(*list)-1]
	return s.members(func(key []byte) error {
		if string(key) == "metadata" {
			return s.objectMeta(m)
		}
		return s.skip()
	})
}

func (s *scanner) objectMeta(m *objectMeta) error {
	var deletion time.Time
	var grace int64
	err := s.members(func(key []byte) error {
		switch string(key) {
		case "uid":
			return s.text((*string)(&m.uid))
		case "resourceVersion":
			return s.text(&m.resourceVersion)
		case "namespace":
			return s.text(&m.namespace)
		case "name":
			return s.text(&m.name)
		case "deletionTimestamp":
			return s.time(&deletion)
		case "deletionGracePeriodSeconds":
			return s.integer(&grace)
		case "managedFields":
			return s.elements(func() error {
				var entry managerTime
				err := s.members(func(key []byte) error {
					switch string(key) {
					case "manager":
						return s.text(&entry.manager)
					case "subresource":
						return s.text(&entry.subresource)
					case "time":
						return s.time(&entry.time)
					}
					return s.skip()
				})
				m.managers = append(m.managers, entry)
				return err
			})
		}
		return s.skip()
	})
	if !deletion.IsZero() {
		m.deletionAsked = deletion.Add(-time.Duration(grace) * time.Second)
	}
	return err
}

// time reads a timestamp; what is none is the zero time.
func (s *scanner) time(t *time.Time) error {
	var text string
	err := s.text(&text)
	*t, _ = time.Parse(time.RFC3339Nano, text)
	return err
}

// meta is the object that the response is about, in any shape of it.
func (r *response) meta() *objectMeta {
	switch {
	case r.isTable() && len(r.rows) == 1:
		return &r.rows[0]
	case r.isTable():
		return &objectMeta{}
	case r.isStatus():
		return &r.details
	}
	return &r.object
}

// list are the objects of a collection; ok is false when the response is none.
func (r *response) list() (list []objectMeta, ok bool) {
	switch {
	case r.isTable():
		return r.rows, true
	case strings.HasSuffix(r.kind, "List"):
		return r.items, true
	}
	return nil, false
}

func (r *response) isTable() bool {
	return r.kind == "Table" && strings.HasPrefix(r.apiVersion, "meta.k8s.io/")
}

func (r *response) isStatus() bool {
	return r.kind == "Status" && r.apiVersion == "v1"
}
