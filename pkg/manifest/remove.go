// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import "fmt"

// Remove returns nil when the file holds the object of this group and name and
// nothing else, so that it may go with the object. Any other file is a
// *RefusedError: removing it would take more than the object (C14).
func Remove(before []byte, group, namespace, name string) error {
	documents, err := parse(before)
	if err != nil {
		return err
	}
	if len(documents) == 0 {
		return &RefusedError{Reason: OtherObject, Detail: "the file holds no object"}
	}
	value, err := read(documents[0].text)
	if err != nil {
		return &RefusedError{Reason: Unreadable, Line: documents[0].line + 1, Detail: err.Error()}
	}
	found := identify(value)
	if found.group != group || found.name != name || found.namespace != "" && found.namespace != namespace {
		return &RefusedError{Reason: OtherObject, Line: documents[0].line + 1, Detail: fmt.Sprintf("the file holds %v, not %q", found, name)}
	}
	if len(documents) > 1 {
		return &RefusedError{Reason: NotEditable, Line: documents[1].line + 1, Detail: fmt.Sprintf("the file holds more than %v", found)}
	}
	return nil
}
