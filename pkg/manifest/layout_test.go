// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func layout(base string, files map[string]string) *Layout {
	l := NewLayout(base)
	for path, content := range files {
		l.Set(path, Index([]byte(content)))
	}
	return l
}

const (
	inShop    = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n"
	inNone    = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	inLab     = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: lab}\n"
	templated = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\nspec: {{ .x }}\n"
)

// C13: an object is edited where it is, and goes to its own path when it is nowhere.
func TestPlace(t *testing.T) {
	const canonical = "prod/shop/deployments.apps/web.yaml"
	for name, c := range map[string]struct {
		files map[string]string
		path  string
		line  int
		// both: refused, naming these.
		both []string
	}{
		"nowhere":                               {nil, canonical, 0, nil},
		"its own path":                          {map[string]string{canonical: inShop}, canonical, 1, nil},
		"another file":                          {map[string]string{"prod/all.yaml": "a: b\n---\n" + inShop}, "prod/all.yaml", 3, nil},
		"an item of a List":                     {map[string]string{"prod/l.yaml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}\n"}, "prod/l.yaml", 4, nil},
		"another version":                       {map[string]string{"prod/x.yaml": strings.Replace(inShop, "v1", "v1beta1", 1)}, "prod/x.yaml", 1, nil},
		"another namespace":                     {map[string]string{"prod/x.yaml": inLab, "prod/shop/x.yaml": inLab}, canonical, 0, nil},
		"another kind":                          {map[string]string{"prod/x.yaml": strings.Replace(inShop, "Deployment", "DaemonSet", 1)}, canonical, 0, nil},
		"another group":                         {map[string]string{"prod/x.yaml": strings.Replace(inShop, "apps/", "example.org/", 1)}, canonical, 0, nil},
		"no namespace, its own path":            {map[string]string{canonical: inNone}, canonical, 1, nil},
		"no namespace, its own directory":       {map[string]string{"prod/shop/x.yaml": inNone}, "prod/shop/x.yaml", 1, nil},
		"no namespace, anyone's":                {map[string]string{"prod/x.yaml": inNone, "prod/shopping/x.yaml": inNone}, canonical, 0, nil},
		"no namespace, another's":               {map[string]string{"prod/lab/x.yaml": inNone}, canonical, 0, nil},
		"the one that says the namespace":       {map[string]string{canonical: inNone, "prod/x.yaml": inShop}, "prod/x.yaml", 1, nil},
		"its own path is taken":                 {map[string]string{canonical: inLab}, canonical, 0, nil},
		"twice in two files":                    {map[string]string{canonical: inShop, "prod/x.yaml": "\n" + inShop}, "", 0, []string{canonical + " line 1", "prod/x.yaml line 2"}},
		"twice in one file":                     {map[string]string{"prod/x.yaml": inShop + "---\n" + inShop}, "", 0, []string{"prod/x.yaml line 1", "prod/x.yaml line 5"}},
		"twice without a namespace":             {map[string]string{"prod/shop/base/x.yaml": inNone, "prod/shop/patch.yaml": inNone}, "", 0, []string{"prod/shop/base/x.yaml line 1", "prod/shop/patch.yaml line 1"}},
		"a template shows it":                   {map[string]string{"prod/chart/web.yaml": templated}, "prod/chart/web.yaml", 1, nil},
		"a template shows it, a file has it":    {map[string]string{"prod/chart/web.yaml": templated, "prod/x.yaml": inShop}, "prod/x.yaml", 1, nil},
		"a template, and its namespace's file":  {map[string]string{"prod/chart/web.yaml": templated, "prod/shop/x.yaml": inNone}, "prod/shop/x.yaml", 1, nil},
		"a duplicate key, not written anywhere": {map[string]string{"prod/x.yaml": inShop + "spec: {a: b, a: c}\n"}, "prod/x.yaml", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"Deployment", ""} {
				o := Object{Group: "apps", Kind: kind, Resource: "deployments", Namespace: "shop", Name: "web"}
				got, err := layout("prod", c.files).Place(o)
				if c.both != nil {
					var refused *RefusedError
					if !errors.As(err, &refused) || refused.Reason != SeveralOwners {
						t.Fatalf("got %v, %v", got, err)
					}
					for _, place := range c.both {
						if !strings.Contains(refused.Detail, place) {
							t.Errorf("%s is not inShop: %v", place, err)
						}
					}
					return
				}
				line := 0
				if got.Entry != nil {
					line = got.Entry.Line
				}
				if err != nil || got.Path != c.path || line != c.line {
					t.Errorf("got %s line %d, %v", got.Path, line, err)
				}
			}
		})
	}
}

// What Place finds, Edit edits, and the document keeps its form.
func TestPlaceAndEdit(t *testing.T) {
	u := object(t, inShop)
	u.Object["spec"] = map[string]any{"replicas": int64(2)}
	intent, err := Render(u)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Edit([]byte("# theirs\n"+inLab+"---\n"+inNone+"spec: {replicas: 1} # r\n"), intent)
	if want := "# theirs\n" + inLab + "---\n" + inNone + "spec: {replicas: 2} # r\n"; err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	refused := (*RefusedError)(nil)
	if got, err := Edit([]byte(templated), intent); !errors.As(err, &refused) || refused.Reason != Template || refused.Line != 6 {
		t.Errorf("%v\n%s", err, got)
	}
}

// Cluster-scoped objects have documents without a namespace anywhere.
func TestPlaceClusterScoped(t *testing.T) {
	l := layout("", map[string]string{"roles.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\n"})
	o := Object{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: "r"}
	if got, err := l.Place(o); err != nil || got.Path != "roles.yaml" || got.Entry == nil {
		t.Errorf("%v, %v", got, err)
	}
	o.Name = "s"
	if got, err := l.Place(o); err != nil || got.Path != "clusterroles.rbac.authorization.k8s.io/s.yaml" || got.Entry != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A layout follows its files.
func TestLayoutSet(t *testing.T) {
	l := layout("prod", map[string]string{"prod/a.yaml": inShop, "prod/b.yaml": templated})
	o := Object{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web"}
	place := func(want string) {
		t.Helper()
		if got, err := l.Place(o); err != nil || got.Path != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	place("prod/a.yaml")
	l.Set("prod/a.yaml", Index([]byte(inLab)))
	place("prod/b.yaml")
	l.Set("prod/b.yaml", File{})
	place("prod/shop/deployments.apps/web.yaml")
	l.Set("prod/c.yaml", Index([]byte(inShop)))
	l.Set("prod/c.yaml", Index([]byte(inShop)))
	place("prod/c.yaml")
}

// C9: what a prune may ask for.
func TestLayoutObjects(t *testing.T) {
	l := layout("prod", map[string]string{
		"prod/all.yaml":                       inShop + "---\n" + strings.Replace(inShop, "web", "api", 1),
		"prod/shop/x.yaml":                    strings.Replace(inNone, "web", "db", 1),
		"prod/x.yaml":                         strings.Replace(inNone, "web", "anyone", 1),
		"prod/chart.yaml":                     strings.Replace(templated, "web", "chart", 1),
		"prod/lab.yaml":                       strings.Replace(inLab, "web", "lab", 1),
		"prod/shop/deployments.apps/not.yaml": "resources: []\n",
		"prod/shop/mice.example.org/m.yaml":   "apiVersion: example.org/v1\nkind: Mouse\nmetadata: {name: m, namespace: shop}\n",
		"prod/gateway.yaml":                   "apiVersion: example.org/v1\nkind: Gateway\nmetadata: {name: g, namespace: shop}\n",
	})
	for _, c := range []struct {
		o    Object
		want []string
	}{
		{Object{Group: "apps", Resource: "deployments", Namespace: "shop"}, []string{"api", "db", "web"}},
		{Object{Group: "apps", Kind: "Deployment", Resource: "deployments", Namespace: "lab"}, []string{"lab"}},
		{Object{Group: "apps", Resource: "daemonsets", Namespace: "shop"}, nil},
		{Object{Group: "example.org", Resource: "mice", Namespace: "shop"}, []string{"m"}},
		{Object{Group: "example.org", Kind: "Gateway", Resource: "gateways", Namespace: "shop"}, []string{"g"}},
		{Object{Group: "example.org", Resource: "gateways", Namespace: "shop"}, []string{"g"}},
	} {
		var got []string
		for _, o := range l.Objects(c.o.Group, c.o.Kind, c.o.Resource, c.o.Namespace) {
			got = append(got, o.Name)
			if at, err := l.Place(o); err != nil || at.Entry == nil {
				t.Errorf("%v is not where it was found: %v, %v", o, at, err)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.o, diff)
		}
	}
	problems := maps.Collect(l.Problems())
	if names := slices.Collect(maps.Keys(problems)); !slices.Equal(names, []string{"prod/chart.yaml"}) || problems["prod/chart.yaml"].Reason != Template || problems["prod/chart.yaml"].Line != 6 {
		t.Errorf("problems: %v", problems)
	}
}

// Plurals as discovery has them for kinds that a deletion names by resource only.
func TestPlural(t *testing.T) {
	for resource, kind := range map[string]string{
		"ingresses": "Ingress", "networkpolicies": "NetworkPolicy", "endpoints": "Endpoints", "gateways": "Gateway",
		"network-attachment-definitions": "NetworkAttachmentDefinition", "storageclasses": "StorageClass",
	} {
		if !plural(kind, resource) {
			t.Errorf("%s, %s", kind, resource)
		}
		if plural(kind+"List", resource) || plural("X"+kind, resource) {
			t.Errorf("%s is not only of %s", resource, kind)
		}
	}
}
