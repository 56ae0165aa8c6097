// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"

	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/capture"
)

// places keeps where capture is in the journal of what it has handed on.
type places struct{ *recovery.Journal }

var _ capture.Places = places{}

// Place implements capture.Places. A place that makes no sense is none.
func (p places) Place(of capture.ScopedResource) (capture.Place, bool) {
	var place capture.Place
	row, ok := p.Journal.Place(recovery.Source(of))
	return place, ok && json.Unmarshal(row, &place) == nil
}

// Sources implements capture.Places.
func (p places) Sources() []capture.ScopedResource {
	var of []capture.ScopedResource
	for _, source := range p.Journal.Sources() {
		of = append(of, capture.ScopedResource(source))
	}
	return of
}

// Save implements capture.Places.
func (p places) Save(of capture.ScopedResource, place capture.Place) {
	row, _ := json.Marshal(place) // holds nothing that cannot be marshalled
	p.Passed(recovery.Source(of), place.ResourceVersion, row)
}

// Forget implements capture.Places.
func (p places) Forget(of capture.ScopedResource) { p.Journal.Forget(recovery.Source(of)) }
