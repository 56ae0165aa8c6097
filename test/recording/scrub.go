// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

var (
	uuid        = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timestamp   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	pem         = regexp.MustCompile(`-----BEGIN [^"]*?-----END [A-Z ]+-----(\\n)*`)
	fingerprint = regexp.MustCompile(`X509SHA256=[0-9a-f]+`)
	// secret is what must be nowhere afterwards: PEM, and the beginning of a token.
	secret = regexp.MustCompile(`-----BEGIN|eyJ[A-Za-z0-9_-]{8}`)
)

// SecretError says that something that looks like a credential was recorded.
type SecretError struct{ Text string }

func (e *SecretError) Error() string {
	return fmt.Sprintf("this would record a credential, leave its request out of the audit policy: %.80s", e.Text)
}

// Scrub makes what was recorded from this time on fit for the tree: times are moved
// by whole seconds so that it begins at Epoch, uids are numbered in the order of
// their appearance, certificates are left out. All else stays byte for byte. What
// still looks like a credential is a *SecretError.
func (r *Recording) Scrub(began time.Time) error {
	s := &scrubber{shift: Epoch.Sub(began.Truncate(time.Second)), uuids: map[string]string{}}
	for i := range r.Batches {
		b := &r.Batches[i]
		b.Received = b.Received.UTC().Add(s.shift)
		for j, event := range b.Events {
			scrubbed, err := s.scrub(event)
			if err != nil {
				return err
			}
			b.Events[j] = scrubbed
		}
	}
	for i := range r.Watch {
		w := &r.Watch[i]
		w.Received = w.Received.UTC().Add(s.shift)
		scrubbed, err := s.scrub(w.Object)
		if err != nil {
			return err
		}
		w.Object = scrubbed
	}
	for i := range r.Truth {
		r.Truth[i].UID = s.number(r.Truth[i].UID)
	}
	return nil
}

type scrubber struct {
	shift time.Duration
	uuids map[string]string
}

func (s *scrubber) scrub(text json.RawMessage) (json.RawMessage, error) {
	b := pem.ReplaceAll(text, []byte("(certificate)"))
	b = fingerprint.ReplaceAll(b, []byte("X509SHA256=0"))
	if found := secret.Find(b); found != nil {
		return nil, &SecretError{Text: string(found)}
	}
	b = uuid.ReplaceAllFunc(b, func(id []byte) []byte { return []byte(s.number(string(id))) })
	return timestamp.ReplaceAllFunc(b, s.move), nil
}

// number is the uid's number in the form of a uid. What has none stays.
func (s *scrubber) number(id string) string {
	if !uuid.MatchString(id) {
		return id
	}
	if s.uuids[id] == "" {
		s.uuids[id] = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(s.uuids)+1)
	}
	return s.uuids[id]
}

// move shifts a time and keeps its precision.
func (s *scrubber) move(text []byte) []byte {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return text
	}
	layout := "2006-01-02T15:04:05Z"
	if fraction := len(text) - len(layout); fraction > 0 {
		layout = "2006-01-02T15:04:05." + "000000000"[:fraction-1] + "Z"
	}
	return t.UTC().Add(s.shift).AppendFormat(nil, layout)
}
