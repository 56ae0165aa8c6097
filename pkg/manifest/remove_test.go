// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"strings"
	"testing"
)

// C14: a deletion takes the object and nothing that stands beside it.
func TestRemove(t *testing.T) {
	const (
		object  = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\n"
		service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
		other   = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: web, namespace: shop}\n"
		list    = "apiVersion: v1\nkind: List\nitems:\n"
		item    = "- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}\n"
	)
	for name, test := range map[string]struct {
		file, after string
		want        Reason
	}{
		"its own file":           {object, "", ""},
		"with a comment":         {"# by hand\n" + object, "", ""},
		"without a namespace":    {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n", "", ""},
		"another name":           {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api}\n", "", OtherObject},
		"another namespace":      {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: lab}\n", "", OtherObject},
		"another group":          {service, "", OtherObject},
		"another kind":           {other, "", OtherObject},
		"a kustomization":        {"resources: [web.yaml]\n", "", OtherObject},
		"nothing but a comment":  {"# nothing\n", "", OtherObject},
		"not YAML at all":        {"{{ .Values }}: [\n", "", Template},
		"a key twice, ambiguous": {object + "kind: Service\n", "", DuplicateKey},
		"twice":                  {object + "---\n" + object, "", SeveralOwners},

		"the first document":                 {object + "---\n" + service, service, ""},
		"the last document":                  {service + "---\n" + object, service, ""},
		"a document between":                 {service + "--- # web\n# above\n" + object + "--- # next\n" + other, service + "--- # next\n" + other, ""},
		"the first one under a licence":      {"# licence\n\n# web\n" + object + "---\n" + service, "# licence\n\n---\n" + service, ""},
		"the first one, a word after it":     {object + "--- # next\n" + service, "--- # next\n" + service, ""},
		"the last one, CRLF":                 {"\ufeffa: b\r\n---\r\n" + strings.ReplaceAll(object, "\n", "\r\n"), "\ufeffa: b\r\n", ""},
		"beside one without a namespace":     {object + "---\n" + strings.ReplaceAll(object, "  namespace: shop\n", ""), strings.ReplaceAll(object, "  namespace: shop\n", ""), ""},
		"an item of a List":                  {list + "- " + "{apiVersion: v1, kind: Service, metadata: {name: web}} # s\n" + "# web\n" + item, list + "- {apiVersion: v1, kind: Service, metadata: {name: web}} # s\n", ""},
		"the only item of a List":            {list + item, "", ""},
		"the only item, beside a document":   {list + item + "---\n" + service, service, ""},
		"an item in JSON":                    {`{"kind":"List","apiVersion":"v1","items":[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"}}, {"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}]}`, `{"kind":"List","apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}]}`, ""},
		"a whole document that is encrypted": {object + "sops: {mac: x}\n---\n" + service, service, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"", "Deployment"} {
				after, err := Remove([]byte(test.file), Object{Group: "apps", Kind: kind, Resource: "deployments", Namespace: "shop", Name: "web"})
				var refused *RefusedError
				switch {
				case test.want == "" && err != nil:
					t.Errorf("refused: %v", err)
				case test.want != "" && (!errors.As(err, &refused) || refused.Reason != test.want):
					t.Errorf("got %v, want %s", err, test.want)
				case string(after) != test.after:
					t.Errorf("got\n%s\nwant\n%s", after, test.after)
				case test.want == "" && test.after == "" && after != nil:
					t.Error("the file should go")
				}
			}
		})
	}
}
