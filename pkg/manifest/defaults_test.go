// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// C14: what the server filled in is not written into a file that never had it, and
// what is not what the server fills in, is.
func TestEditOmitsDefaults(t *testing.T) {
	const (
		deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec:\n"
		service    = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n"
		template   = "  template:\n    spec:\n      containers:\n      - name: c\n"
	)
	for name, c := range map[string]struct{ before, live, after string }{
		"all are defaults": {deployment + template + "        image: a:1\n",
			deployment + "  replicas: 1\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}\n  progressDeadlineSeconds: 600\n" + template + "        image: a:1\n        imagePullPolicy: IfNotPresent\n        resources: {}\n      restartPolicy: Always\n      securityContext: {}\n",
			deployment + template + "        image: a:1\n"},
		"one is a choice": {deployment + template + "        image: a\n",
			deployment + "  replicas: 1\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 25%}}\n" + template + "        image: a\n        imagePullPolicy: Never\n",
			deployment + template + "        image: a\n        imagePullPolicy: Never\n  strategy:\n    rollingUpdate:\n      maxSurge: 1\n      maxUnavailable: \"25%\"\n    type: RollingUpdate\n"},
		"a field of the file goes back to its default": {deployment + "  replicas: 3 # r\n", deployment + "  replicas: 1\n", deployment + "  replicas: 1 # r\n"},
		"a digest is not pulled anew":                  {deployment + template + "        image: a@sha256:0\n", deployment + template + "        image: a@sha256:0\n        imagePullPolicy: Always\n", deployment + template + "        image: a@sha256:0\n        imagePullPolicy: Always\n"},
		"the latest is":                                {deployment + template + "        image: r:5000/a:latest\n", deployment + template + "        image: r:5000/a:latest\n        imagePullPolicy: Always\n", deployment + template + "        image: r:5000/a:latest\n"},
		"a port to itself":                             {service + "  ports: [{port: 80}]\n", service + "  ports: [{port: 80, targetPort: 80, protocol: TCP}]\n  type: ClusterIP\n", service + "  ports: [{port: 80}]\n"},
		"a port to another":                            {service + "  ports: [{port: 80}]\n", service + "  ports: [{port: 80, targetPort: 81, protocol: TCP}]\n", service + "  ports: [{port: 80, targetPort: 81}]\n"},
		"another kind's field":                         {thingHead + "spec: {a: b}\n", thingHead + "spec: {a: b, replicas: 1, type: ClusterIP}\n", thingHead + "spec: {a: b, replicas: 1, type: ClusterIP}\n"},

		// What the server does not store may be in the file.
		"false where that is nothing":  {"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 1\nglobalDefault: false # no\n", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: p}, value: 2}", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: p}\nvalue: 2\nglobalDefault: false # no\n"},
		"false where that is a choice": {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\nautomountServiceAccountToken: false\n", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}}", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\n"},
		"an empty value":               {podHead + "spec:\n  containers:\n  - name: c\n    env: [{name: a, value: \"\"}]\n", podHead + "spec: {containers: [{name: c, env: [{name: a}]}]}\n", podHead + "spec:\n  containers:\n  - name: c\n    env: [{name: a, value: \"\"}]\n"},
		"an empty volume that goes":    {podHead + "spec:\n  volumes:\n  - {name: v, emptyDir: {}}\n", podHead + "spec: {volumes: [{name: v}]}\n", podHead + "spec:\n  volumes:\n  - {name: v}\n"},
		"no rules, in any spelling": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: []\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\n",
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{verbs: [get]}]}",
			"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: []\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			intent, err := Render(object(t, c.live))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Edit([]byte(c.before), intent)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again, err := Edit(got, intent); err != nil || string(again) != string(got) {
				t.Errorf("the second time changes something: %v\n%s", err, again)
			}
		})
	}
}
