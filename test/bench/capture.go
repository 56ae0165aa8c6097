// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// captureBenchmarks compare capture with what else reads a cluster, or an audit
// stream, and with saving by hand.
func captureBenchmarks() []benchmark {
	return []benchmark{
		{name: "capture_event", unit: "us", rounds: 15, prepare: captureEvent},
		{name: "capture_audit_event", unit: "us", rounds: 15, prepare: captureAuditEvent},
		{name: "capture_10k_memory", unit: "MB", rounds: 3, prepare: captureMemory},
		{name: "capture_first_sync_10k", unit: "ms", rounds: 3, prepare: captureFirstSync},
		{name: "capture_relist_10k", unit: "ms", rounds: 5, prepare: captureRelist},
		{name: "capture_burst_1000", unit: "ms", rounds: burstRounds, prepare: captureBurst},
	}
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// shopDeployment is a Deployment as people write them.
const shopDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: default
  labels: {app: web, tier: front, team: shop}
  annotations: {contact: shop@example.com, runbook: "https://example.com/runbooks/web"}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web, tier: front}
      annotations: {checksum/config: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef}
    spec:
      serviceAccountName: web
      securityContext: {runAsNonRoot: true, fsGroup: 2000}
      containers:
      - name: web
        image: registry.example.com/shop/web:1.28.3
        args: ["--listen=:8080", "--log-level=info"]
        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}]
        env:
        - {name: DATABASE_HOST, value: db.shop.svc}
        - {name: GREETING, value: "Good morning: we are open"}
        - name: PASSWORD
          valueFrom: {secretKeyRef: {name: db, key: password}}
        resources: {requests: {cpu: 250m, memory: 128Mi}, limits: {memory: 256Mi}}
        livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10}
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5}
        volumeMounts: [{name: config, mountPath: /etc/web, readOnly: true}]
      volumes:
      - name: config
        configMap: {name: web}
`

// recordDeployment returns shopDeployment as a real cluster answers: with its
// defaults, its status and who owns which field.
func recordDeployment(ctx context.Context) (_ *unstructured.Unstructured, err error) {
	dir, err := os.MkdirTemp("", "kommit-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: filepath.Join(dir, "cp"), BinDir: binaries, WithControllerManager: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if _, _, err := cp.KubectlInput(ctx, controlplane.Admin, strings.NewReader(shopDeployment), "apply", "--filename=-"); err != nil {
		return nil, err
	}
	if _, _, err := cp.Kubectl(ctx, controlplane.Admin, "wait", "--for=jsonpath={.status.observedGeneration}=1", "deployment/web", "--timeout=60s"); err != nil {
		return nil, err
	}
	config, err := cp.RESTConfig(controlplane.Admin)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.Resource(deployments).Namespace("default").Get(ctx, "web", metav1.GetOptions{})
}

// recordings are versions of an object, as bytes.
type recordings struct {
	object *unstructured.Unstructured
	// version is the last resourceVersion made up.
	version int
}

// recording is one version of one object.
type recording struct {
	name, version string
	uid           types.UID
	bytes         []byte
}

// next makes so many more, of that many objects in turn; each has another image
// than the one before.
func (r *recordings) next(count, objects int) ([]recording, error) {
	made := make([]recording, count)
	for i := range made {
		r.version++
		u := r.object.DeepCopy()
		one := recording{name: fmt.Sprintf("web-%d", i%objects), version: fmt.Sprint(r.version)}
		one.uid = types.UID("uid-of-" + one.name)
		u.SetName(one.name)
		u.SetUID(one.uid)
		u.SetResourceVersion(one.version)
		containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return nil, err
		}
		containers[0].(map[string]any)["image"] = "registry.example.com/shop/web:1.28." + one.version
		if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			return nil, err
		}
		if one.bytes, err = u.MarshalJSON(); err != nil {
			return nil, err
		}
		made[i] = one
	}
	return made, nil
}

// replay stands for the connection to kube-apiserver: it lists nothing, and its
// watch brings what is played, decoded as client-go does.
type replay struct {
	dynamic.NamespaceableResourceInterface

	events chan []recording
	// now are those being played; the watch's.
	now []recording
}

var (
	_ dynamic.Interface = (*replay)(nil)
	_ watch.Decoder     = (*replay)(nil)
)

// Resource implements dynamic.Interface.
func (r *replay) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return r
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r *replay) Namespace(string) dynamic.ResourceInterface { return r }

// IsWatchListSemanticsUnSupported has the reflector list first.
func (r *replay) IsWatchListSemanticsUnSupported() bool { return true }

// List implements dynamic.ResourceInterface.
func (r *replay) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apps/v1")
	list.SetKind("DeploymentList")
	list.SetResourceVersion("1")
	return list, nil
}

// Watch implements dynamic.ResourceInterface.
func (r *replay) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewStreamWatcher(r, watchFailure{}), nil
}

// Decode implements watch.Decoder.
func (r *replay) Decode() (watch.EventType, runtime.Object, error) {
	for len(r.now) == 0 {
		next, ok := <-r.events
		if !ok {
			return "", nil, io.EOF
		}
		r.now = next
	}
	object, _, err := unstructured.UnstructuredJSONScheme.Decode(r.now[0].bytes, nil, nil)
	r.now = r.now[1:]
	return watch.Modified, object, err
}

// Close implements watch.Decoder; who plays closes events.
func (r *replay) Close() {}

// watchFailure passes errors of a watch on as they are.
type watchFailure struct{}

// AsObject implements watch.Reporter.
func (watchFailure) AsObject(err error) runtime.Object {
	return &metav1.Status{Status: "Failure", Message: err.Error()}
}

// processorTime is what this process has used up to now, all threads together:
// work that is spread over several costs what it costs.
func processorTime() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// processorCost measures what one of so many costs, in microseconds.
func processorCost(many int, work func() error) (float64, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := processorTime()
	return float64((after - before).Nanoseconds()) / 1000 / float64(many), err
}
