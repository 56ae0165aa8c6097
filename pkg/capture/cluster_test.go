// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/restmapper"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	services    = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func TestMain(m *testing.M) {
	// The second handler throttles by the time since the process began, which in a
	// bubble of synctest is a quarter of a century away.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// cluster stands for the host cluster behind client-go's fake clients: one
// resourceVersion sequence, lists and watches from it.
type cluster struct {
	dynamic  *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient

	mu       sync.Mutex
	revision int
	objects  map[schema.GroupVersionResource]map[string]*unstructured.Unstructured
	log      map[schema.GroupVersionResource][]logged
	// compacted: watches from before are expired.
	compacted int
	watchers  map[schema.GroupVersionResource][]*watch.RaceFreeFakeWatcher
	// forbidden resources cannot be listed.
	forbidden map[string]bool
	// absent resources are answered 404.
	absent map[schema.GroupVersionResource]bool
	// held resources deliver no watch events until they are released.
	held map[string]bool
	kept map[schema.GroupVersionResource][]watch.Event
	// lists counts the lists of whole objects.
	lists map[string]int
	// watches counts the watches.
	watches map[string]int
	// exact are the lists of the past.
	exact []string
	// down: the past is answered 503.
	down bool
	// silent resources' watches begin with nothing: what they should is kept.
	silent map[schema.GroupVersionResource]bool
}

type logged struct {
	revision int
	event    watch.Event
}

func newCluster() *cluster {
	scheme := runtime.NewScheme()
	v2 := schema.GroupVersionResource{Group: "apps", Version: "v2", Resource: "deployments"}
	kinds := map[schema.GroupVersionResource]string{v2: "DeploymentList", configMaps: "ConfigMapList", services: "ServiceList", deployments: "DeploymentList"}
	c := &cluster{
		dynamic:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, kinds),
		metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		revision: 100,
		objects:  map[schema.GroupVersionResource]map[string]*unstructured.Unstructured{},
		log:      map[schema.GroupVersionResource][]logged{}, watchers: map[schema.GroupVersionResource][]*watch.RaceFreeFakeWatcher{},
		forbidden: map[string]bool{}, absent: map[schema.GroupVersionResource]bool{}, held: map[string]bool{}, kept: map[schema.GroupVersionResource][]watch.Event{}, lists: map[string]int{}, watches: map[string]int{}, silent: map[schema.GroupVersionResource]bool{},
	}
	c.dynamic.PrependReactor("list", "*", c.list)
	c.dynamic.PrependWatchReactor("*", c.watch)
	c.metadata.PrependReactor("list", "*", c.listMetadata)
	return c
}

func (c *cluster) list(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gvr := action.GetResource()
	if c.forbidden[gvr.Resource] {
		return true, nil, apierrors.NewForbidden(gvr.GroupResource(), "", fmt.Errorf("no"))
	}
	if c.absent[gvr] {
		return true, nil, apierrors.NewGenericServerResponse(404, "list", gvr.GroupResource(), "", "", 0, true)
	}
	c.lists[gvr.Resource]++
	at, objects := c.revision, c.objects[gvr]
	if options := action.(clienttesting.ListActionImpl).ListOptions; options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		at, _ = strconv.Atoi(options.ResourceVersion)
		switch {
		case c.down:
			return true, nil, apierrors.NewServiceUnavailable("down")
		case at < c.compacted:
			return true, nil, apierrors.NewResourceExpired("compacted")
		case at > c.revision:
			// As kube-apiserver 1.37 says it, after its own and the client's patience.
			err := apierrors.NewTimeoutError("too large resource version", 1)
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
			return true, nil, err
		}
		c.exact = append(c.exact, fmt.Sprintf("%s at %d", gvr.Resource, at))
		objects = c.asOf(gvr, at)
	}
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion(strconv.Itoa(at))
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if u := objects[name]; u.GetNamespace() == action.GetNamespace() {
			list.Items = append(list.Items, *u.DeepCopy())
		}
	}
	return true, list, nil
}

// asOf are the objects of a resource as they were. Called with mu held.
func (c *cluster) asOf(gvr schema.GroupVersionResource, revision int) map[string]*unstructured.Unstructured {
	objects := map[string]*unstructured.Unstructured{}
	for _, l := range c.log[gvr] {
		if u := l.event.Object.(*unstructured.Unstructured); l.revision <= revision {
			if objects[u.GetName()] = u; l.event.Type == watch.Deleted {
				delete(objects, u.GetName())
			}
		}
	}
	return objects
}

func (c *cluster) listMetadata(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gvr := action.GetResource()
	if c.forbidden[gvr.Resource] {
		return true, nil, apierrors.NewForbidden(gvr.GroupResource(), "", fmt.Errorf("no"))
	}
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.revision)}}
	for _, name := range slices.Sorted(maps.Keys(c.objects[gvr])) {
		u := c.objects[gvr][name]
		list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()},
			ObjectMeta: metav1.ObjectMeta{
				Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(),
				ResourceVersion: u.GetResourceVersion(), Labels: u.GetLabels(),
			},
		}})
	}
	return true, list, nil
}

func (c *cluster) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gvr := action.GetResource()
	if c.absent[gvr] {
		return true, nil, apierrors.NewGenericServerResponse(404, "watch", gvr.GroupResource(), "", "", 0, true)
	}
	from, _ := strconv.Atoi(action.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
	if from < c.compacted {
		return true, nil, apierrors.NewResourceExpired("too old")
	}
	c.watches[gvr.Resource]++
	w := watch.NewRaceFreeFake()
	for _, l := range c.log[gvr] {
		switch {
		case l.revision <= from:
		case c.silent[gvr]:
			c.kept[gvr] = append(c.kept[gvr], l.event)
		default:
			w.Action(l.event.Type, l.event.Object)
		}
	}
	c.watchers[gvr] = append(c.watchers[gvr], w)
	return true, w, nil
}

// emit is called with mu held.
func (c *cluster) emit(gvr schema.GroupVersionResource, t watch.EventType, u *unstructured.Unstructured) {
	event := watch.Event{Type: t, Object: u.DeepCopy()}
	c.log[gvr] = append(c.log[gvr], logged{c.revision, event})
	if c.held[gvr.Resource] {
		c.kept[gvr] = append(c.kept[gvr], event)
		return
	}
	for _, w := range c.watchers[gvr] {
		w.Action(event.Type, event.Object)
	}
}

// release delivers what was held back.
func (c *cluster) release(gvr schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[gvr.Resource] = false
	for _, event := range c.kept[gvr] {
		for _, w := range c.watchers[gvr] {
			w.Action(event.Type, event.Object)
		}
	}
	c.kept[gvr] = nil
}

// expire ends all watches and forgets the past: reflectors have to list again.
func (c *cluster) expire(gvr schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	c.compacted = c.revision
	for _, w := range c.watchers[gvr] {
		w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		w.Stop()
	}
	c.watchers[gvr] = nil
}

// disconnect ends the delivery of events; only a list shows what happens from now.
func (c *cluster) disconnect(gvr schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[gvr.Resource] = true
}

// write stores an object and returns its uid and resourceVersion.
func (c *cluster) write(gvr schema.GroupVersionResource, u *unstructured.Unstructured) (types.UID, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	if c.objects[gvr] == nil {
		c.objects[gvr] = map[string]*unstructured.Unstructured{}
	}
	u = u.DeepCopy()
	old, exists := c.objects[gvr][u.GetName()]
	event := watch.Added
	u.SetUID(types.UID(fmt.Sprintf("uid-%d", c.revision)))
	u.SetCreationTimestamp(metav1.Now())
	if exists {
		event = watch.Modified
		u.SetUID(old.GetUID())
		u.SetCreationTimestamp(old.GetCreationTimestamp())
	}
	u.SetResourceVersion(strconv.Itoa(c.revision))
	c.objects[gvr][u.GetName()] = u
	c.emit(gvr, event, u)
	return u.GetUID(), u.GetResourceVersion()
}

// remove deletes an object for good.
func (c *cluster) remove(gvr schema.GroupVersionResource, name string) types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	u := c.objects[gvr][name].DeepCopy()
	u.SetResourceVersion(strconv.Itoa(c.revision))
	delete(c.objects[gvr], name)
	c.emit(gvr, watch.Deleted, u)
	return u.GetUID()
}

func configMap(name, value string, edit ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": "shop"},
		"data":     map[string]any{"k": value},
	}}
	for _, e := range edit {
		e(u)
	}
	return u
}

func labelled(pairs ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		set := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			set[pairs[i]] = pairs[i+1]
		}
		u.SetLabels(set)
	}
}

var _ Sink = (*branches)(nil)

// bench is a running Capture in a synctest bubble.
type bench struct {
	*cluster
	*audit
	*branches
	capture   *Capture
	discovery *discovery
	// rules and targets feed the informers.
	rules, targets *cachetesting.FakeControllerSource

	kill func()

	statusMu sync.Mutex
	statuses map[string]v1alpha1.WatchRuleStatus
	// writes counts the statuses written.
	writes int
}

const grace = 45 * time.Second

func newBench(t *testing.T, prepare func(*bench)) *bench {
	b := &bench{
		cluster: newCluster(), audit: newAudit(grace), branches: &branches{files: map[window.Object]string{}},
		discovery: newDiscovery(),
	}
	b.start(t, nil, prepare)
	return b
}

// start begins a process; kill ends it.
func (b *bench) start(t *testing.T, places Places, prepare func(*bench)) {
	ctx, cancel := context.WithCancel(t.Context())
	b.statuses = map[string]v1alpha1.WatchRuleStatus{}
	b.rules, b.targets = cachetesting.NewFakeControllerSource(), cachetesting.NewFakeControllerSource()
	rules := cache.NewSharedIndexInformer(b.rules, &v1alpha1.WatchRule{}, 0, nil)
	targets := cache.NewSharedIndexInformer(b.targets, &v1alpha1.GitTarget{}, 0, nil)
	b.capture = New(Config{
		Dynamic: b.dynamic, Metadata: b.metadata, Mapper: b.discovery, WatchRules: rules, GitTargets: targets,
		WriteStatus: b.writeStatus, Joiner: b.audit, Facts: b.audit, Sink: b.branches, AttributionGrace: grace,
		Places: places,
	})
	if prepare != nil {
		prepare(b)
	}
	var running sync.WaitGroup
	running.Go(func() { rules.RunWithContext(ctx) })
	running.Go(func() { targets.RunWithContext(ctx) })
	running.Go(func() {
		if err := b.capture.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	b.kill = sync.OnceFunc(func() {
		cancel()
		b.rules.Shutdown()
		b.targets.Shutdown()
		running.Wait()
	})
	t.Cleanup(b.kill)
	time.Sleep(time.Second) // informers are looked at every 100ms until they are synced
	synctest.Wait()
}

// served is what discovery says.
func served() []*restmapper.APIGroupResources {
	group := func(name string, resources ...metav1.APIResource) *restmapper.APIGroupResources {
		version := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: name, Version: "v1"}.String(), Version: "v1"}
		return &restmapper.APIGroupResources{
			Group:              metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
			VersionedResources: map[string][]metav1.APIResource{"v1": resources},
		}
	}
	return []*restmapper.APIGroupResources{
		group("", metav1.APIResource{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", Namespaced: true},
			metav1.APIResource{Name: "services", SingularName: "service", Kind: "Service", Namespaced: true},
			metav1.APIResource{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"}),
		group("apps", metav1.APIResource{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true}),
	}
}

// discovery stands for what kube-apiserver says of its resources, kept until a
// Reset as client-go's mapper keeps it.
type discovery struct {
	apimeta.ResettableRESTMapper // of which nothing is used but what is below

	mu        sync.Mutex
	now, next answer
}

func newDiscovery() *discovery {
	d := &discovery{}
	d.serve(served())
	d.Reset()
	return d
}

// answer is what kube-apiserver says, but for what it leaves out.
type answer struct {
	apimeta.RESTMapper
	fail    error
	leftOut *string
}

func (d *discovery) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = d.next
}

func (d *discovery) said() answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now.fail != nil { // nothing was kept
		d.now = d.next
	}
	return d.now
}

func (a answer) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	if a.fail != nil {
		return nil, a.fail
	}
	if a.leftOut != nil && *a.leftOut == input.Group {
		return nil, &apimeta.NoResourceMatchError{PartialResource: input}
	}
	return a.RESTMapper.ResourcesFor(input)
}

// answer has discovery answer so from the next Reset on.
func (d *discovery) answer(fail error, leftOut *string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next.fail, d.next.leftOut = fail, leftOut
}

// serve has discovery know these from the next Reset on.
func (d *discovery) serve(resources []*restmapper.APIGroupResources) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next.RESTMapper = restmapper.NewDiscoveryRESTMapper(resources)
}

func (d *discovery) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return d.said().ResourcesFor(input)
}

func (d *discovery) KindFor(input schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return d.said().KindFor(input)
}

func (d *discovery) RESTMapping(gk schema.GroupKind, versions ...string) (*apimeta.RESTMapping, error) {
	return d.said().RESTMapping(gk, versions...)
}

func (b *bench) writeStatus(_ context.Context, rule *v1alpha1.WatchRule) error {
	b.statusMu.Lock()
	defer b.statusMu.Unlock()
	b.writes++
	b.statuses[rule.Name] = rule.Status
	b.rules.Modify(rule)
	return nil
}

// status returns the reason and value of a condition of a rule.
func (b *bench) status(rule, condition string) string {
	b.statusMu.Lock()
	defer b.statusMu.Unlock()
	status := b.statuses[rule]
	c := apimeta.FindStatusCondition(status.Conditions, condition)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func (b *bench) target(name string, edit ...func(*v1alpha1.GitTargetSpec)) {
	t := &v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
	for _, e := range edit {
		e(&t.Spec)
	}
	b.targets.Add(t)
}

func newRule(name, target string, entries ...v1alpha1.WatchedResources) *v1alpha1.WatchRule {
	return &v1alpha1.WatchRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Generation: 1},
		Spec:       v1alpha1.WatchRuleSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: target}, Resources: entries},
	}
}

func core(resources ...string) v1alpha1.WatchedResources {
	return v1alpha1.WatchedResources{Resources: resources}
}

// expect compares what reached the sink since the last call.
func (b *bench) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := b.take(); !slices.Equal(got, want) {
		t.Errorf("the sink got\n\t%q\nwant\n\t%q", got, want)
	}
}
