// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"testing"
)

// C14: a deletion takes the object's own file and nothing that stands beside it.
func TestRemoveOnlyTheObjectsOwnFile(t *testing.T) {
	const object = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\n"
	for name, test := range map[string]struct {
		file string
		want Reason
	}{
		"its own file":           {object, ""},
		"with a comment":         {"# by hand\n" + object, ""},
		"without a namespace":    {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", ""},
		"another name":           {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\n", OtherObject},
		"another namespace":      {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: lab}\n", OtherObject},
		"another group":          {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", OtherObject},
		"a kustomization":        {"resources: [web.yaml]\n", OtherObject},
		"two documents":          {object + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n", NotEditable},
		"nothing but a comment":  {"# nothing\n", OtherObject},
		"not YAML at all":        {"{{ .Values }}: [\n", Template},
		"a List that it is in":   {"apiVersion: v1\nkind: List\nitems:\n- " + "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}\n", OtherObject},
		"a key twice, ambiguous": {object + "kind: Service\n", DuplicateKey},
	} {
		t.Run(name, func(t *testing.T) {
			err := Remove([]byte(test.file), "apps", "shop", "web")
			var refused *RefusedError
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (!errors.As(err, &refused) || refused.Reason != test.want):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
