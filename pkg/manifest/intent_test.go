// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(asJSON); err != nil {
		t.Fatal(err)
	}
	return u
}

// C2: leave out by exact name, keep everything else.
func TestIntent(t *testing.T) {
	for name, c := range map[string]struct{ live, want string }{
		"server metadata and status": {`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  generateName: w
  namespace: shop
  uid: u
  resourceVersion: "1"
  generation: 2
  creationTimestamp: "2026-01-01T00:00:00Z"
  selfLink: /x
  labels: {}
  annotations: {deployment.kubernetes.io/revision: "7", example.org/keep: "", kubectl.kubernetes.io/last-applied-configuration: "{}", kubectl.kubernetes.io/last-applied-configuration-x: kept}
  managedFields: [{manager: m, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]
  ownerReferences: [{apiVersion: v1, kind: K, name: o, uid: u}]
spec:
  replicas: 0
  status: kept
  template: {metadata: {creationTimestamp: null, labels: {uid: kept}}, spec: {volumes: [{name: v, emptyDir: {}}], env: null}}
status: {replicas: 1}
`, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {}
  annotations: {example.org/keep: "", kubectl.kubernetes.io/last-applied-configuration-x: kept}
spec:
  replicas: 0
  status: kept
  template: {metadata: {labels: {uid: kept}}, spec: {volumes: [{name: v, emptyDir: {}}], env: null}}
`},
		"annotations that only the server wrote": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {control-plane.alpha.kubernetes.io/leader: x}}, data: {status: kept}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {status: kept}}`},
		"annotations that were empty": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {}}, binaryData: {}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, annotations: {}}, binaryData: {}}`},
		"service with assigned addresses": {`
apiVersion: v1
kind: Service
metadata:
  name: s
  managedFields: [{manager: m, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:port": {}}, 'k:{"port":81,"protocol":"TCP"}': {"f:nodePort": {}}}}}}]
spec:
  clusterIP: 10.0.0.1
  clusterIPs: [10.0.0.1]
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  type: NodePort
  ports: [{port: 80, protocol: TCP, nodePort: 30001}, {port: 81, protocol: TCP, nodePort: 30002}]
`, `
apiVersion: v1
kind: Service
metadata: {name: s}
spec:
  type: NodePort
  ports: [{port: 80, protocol: TCP}, {port: 81, protocol: TCP, nodePort: 30002}]
`},
		"service with a chosen address": {`
apiVersion: v1
kind: Service
metadata:
  name: s
  managedFields: [{manager: m, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:clusterIP": {}, "f:ipFamilyPolicy": {}}}}]
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilyPolicy: SingleStack}
`, `
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilyPolicy: SingleStack}
`},
		"headless service": {
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None, clusterIPs: [None]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None, clusterIPs: [None]}}`},
		"another kind of the same name": {
			`{apiVersion: example.org/v1, kind: Service, metadata: {name: s}, spec: {clusterIP: kept}}`,
			`{apiVersion: example.org/v1, kind: Service, metadata: {name: s}, spec: {clusterIP: kept}}`},
		"claim bound by the controller": {
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p, annotations: {pv.kubernetes.io/bound-by-controller: "yes"}, finalizers: [kubernetes.io/pvc-protection]}, spec: {volumeName: pvc-1}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p}, spec: {}}`},
		"claim bound by its user": {
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p, finalizers: [kubernetes.io/pvc-protection, example.org/f]}, spec: {volumeName: mine}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p, finalizers: [example.org/f]}, spec: {volumeName: mine}}`},
		"job with a generated selector": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {selector: {matchLabels: {controller-uid: u}}, template: {metadata: {labels: {controller-uid: u, batch.kubernetes.io/job-name: j}}, spec: {}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {metadata: {}, spec: {}}}}`},
		"job with its own selector": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}}}}`},
		"namespace": {
			`{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {kubernetes.io/metadata.name: lab}}, spec: {finalizers: [kubernetes]}}`,
			`{apiVersion: v1, kind: Namespace, metadata: {name: lab}}`},
		"namespace with choices": {
			`{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {a: b, kubernetes.io/metadata.name: lab}}, spec: {finalizers: [kubernetes, example.org/f]}}`,
			`{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {a: b}}, spec: {finalizers: [example.org/f]}}`},
		"account with a token that was made for it": {
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, secrets: [{name: s-token-x7k2p}, {name: s-token-mine}, {name: t-token-x7k2p}]}`,
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, secrets: [{name: s-token-mine}, {name: t-token-x7k2p}]}`},
		"account with such a token, by choice": {
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s, managedFields: [{manager: kubectl, fieldsV1: {"f:secrets": {'k:{"name":"s-token-x7k2p"}': {}}}}]}, secrets: [{name: s-token-x7k2p}]}`,
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, secrets: [{name: s-token-x7k2p}]}`},
		"pod after admission": {
			`{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {pod-template-hash: mine}, managedFields: [{manager: m, fieldsV1: {"f:spec": {"f:priority": {}}}}]}, spec: {nodeName: n, priority: 1, tolerations: [{key: a}], volumes: [{name: kube-api-access-x7k2p}], containers: [{name: c, volumeMounts: [{name: kube-api-access-x7k2p}, {name: mine}]}]}}`,
			`{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {pod-template-hash: mine}}, spec: {priority: 1, containers: [{name: c, volumeMounts: [{name: mine}]}]}}`},
		"pod of a controller": {
			`{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b, pod-template-hash: x}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]}, spec: {nodeName: n}}`,
			`{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: b}}, spec: {nodeName: n}}`},
		"volume bound by the controller": {
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v, annotations: {pv.kubernetes.io/bound-by-controller: "yes"}}, spec: {claimRef: {name: c, uid: u}}}`,
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {}}`},
		"volume kept for a claim": {
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {name: c, namespace: n, uid: u, resourceVersion: "1"}}}`,
			`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {name: c, namespace: n}}}`},
		"aggregated role": {
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, aggregationRule: {}, rules: [{verbs: [get]}]}`,
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, aggregationRule: {}}`},
	} {
		t.Run(name, func(t *testing.T) {
			live := object(t, c.live)
			untouched := live.DeepCopy()
			got, err := Render(live)
			if err != nil {
				t.Fatal(err)
			}
			values, _ := readBoth(t, got)
			if diff := cmp.Diff(object(t, c.want).Object, values); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(untouched, live); diff != "" {
				t.Errorf("Render wrote to its argument: %s", diff)
			}
			if again, err := Render(object(t, string(got))); len(live.GetManagedFields()) == 0 && (err != nil || string(again) != string(got)) {
				t.Errorf("what was rendered is no intent (%v):\n%s", err, again)
			}
		})
	}
}

func TestCaptured(t *testing.T) {
	for text, want := range map[string]bool{
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`:                                                                                       true,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}}`:                                                                        false,
		`{apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: [{name: r, uid: u, controller: true}]}}`:                                     false,
		`{apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: [{name: r, uid: u}]}}`:                                                       true,
		`{apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default}}`:                                                            false,
		`{apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: shop}}`:                                                               true,
		`{apiVersion: v1, kind: Endpoints, metadata: {name: e, labels: {endpoints.kubernetes.io/managed-by: endpoint-controller}}}`:                    false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, uid: u}, secrets: [{name: default-token-x7k2p}]}`:                            false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}, imagePullSecrets: [{name: r}]}`:                                             true,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, annotations: {a: b}}}`:                                                       true,
		`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: a, labels: {kube-aggregator.kubernetes.io/automanaged: onstart}}}`: false,
		`{apiVersion: example.org/v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}}`:                                                            true,
	} {
		if got := Captured(object(t, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// C13.
func TestPath(t *testing.T) {
	long := strings.Repeat("a", 253)
	for want, args := range map[string][5]string{
		"shop/configmaps/c.yaml":                             {"", "", "configmaps", "shop", "c"},
		"clusters/a/shop/deployments.apps/w.yaml":            {"clusters/a", "apps", "deployments", "shop", "w"},
		"a/namespaces/n.yaml":                                {"a", "", "namespaces", "", "n"},
		"shop/roles.rbac.authorization.k8s.io/system:x.yaml": {"", "rbac.authorization.k8s.io", "roles", "shop", "system:x"},
	} {
		if got := Path(args[0], args[1], args[2], args[3], args[4]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	one, two := Path("", "", "configmaps", "shop", long), Path("", "", "configmaps", "shop", long[:252]+"b")
	if len(one) > len("shop/configmaps/")+255 || one == two {
		t.Errorf("long names: %s and %s", one, two)
	}
}

func TestSensitiveResource(t *testing.T) {
	for _, c := range []struct {
		group, resource string
		want            bool
	}{{"", "secrets", true}, {"", "Secret", true}, {"", "configmaps", false}, {"example.org", "secrets", false}} {
		if got := SensitiveResource(c.group, c.resource); got != c.want {
			t.Errorf("%q %q: %v", c.group, c.resource, got)
		}
	}
}
