// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Sole says whether nobody but the user is known to have written to the intent of the
// object between a resourceVersion and v, both left out; empty is the beginning of
// what is known. Of several writes that were not seen one by one, the last one's author
// is not that of all.
func (f *Facts) Sole(v Version, after, username string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	o := f.objects[v.UID]
	if o == nil {
		return true
	}
	for _, known := range o.versions {
		if !between(after, known.resourceVersion, v.ResourceVersion) {
			continue
		}
		if slices.ContainsFunc(known.claims.list, func(c claim) bool { return !c.aside && c.username.Value() != username }) {
			return false
		}
	}
	return true
}

// between says whether a resourceVersion may be between two others. Those that have no
// order may.
func between(after, middle, before string) bool {
	if middle == before {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(middle, before)
	if err == nil && order > 0 {
		return false
	}
	order, err = resourceversion.CompareResourceVersion(after, middle)
	return err != nil || order < 0
}
