// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/manifest"
)

// sourceKey is what one reflector watches.
type sourceKey struct {
	resource  schema.GroupVersionResource
	namespace string
}

// selector is one entry of a rule, for one resource.
type selector struct {
	names  []string
	labels metav1.LabelSelector

	matches labels.Selector
}

func (s selector) selects(name string, set labels.Set) bool {
	return s.mayName(name) && s.matches.Matches(set)
}

func (s selector) mayName(name string) bool {
	return len(s.names) == 0 || slices.Contains(s.names, name)
}

// claim is what one target wants of one source: the union of its rules. A claim
// never changes; other rules make another one, and the pointers tell them apart.
type claim struct {
	target    types.NamespacedName
	selectors []selector

	// wanted counts the reasons for a baseline, done those that one has answered.
	// Guarded by source.mu.
	wanted, done int
	// toldUntil is the resourceVersion up to which the process before told the target of
	// everything; empty if that is not known. Guarded by source.mu.
	toldUntil string
	// owed counts the reasons that are known, and wanted as soon as the worker has made
	// the objects new to the target. Guarded by source.mu.
	owed int
}

// settled reports whether the claim was compared, and has to be for no other reason.
// Caller must hold source.mu.
func (c *claim) settled() bool { return c.done >= c.wanted && c.owed == 0 }

func (c *claim) selects(name string, set labels.Set) bool {
	return slices.ContainsFunc(c.selectors, func(s selector) bool { return s.selects(name, set) })
}

// mayName reports whether an object of that name could be selected, its labels
// being unknown.
func (c *claim) mayName(name string) bool {
	return slices.ContainsFunc(c.selectors, func(s selector) bool { return s.mayName(name) })
}

func (c *claim) equal(other *claim) bool {
	return c.target == other.target && slices.EqualFunc(c.selectors, other.selectors, func(a, b selector) bool {
		return slices.Equal(a.names, b.names) && reflect.DeepEqual(a.labels, b.labels)
	})
}

// problem is why a rule does not capture a resource.
type problem struct {
	// reason is a Reason* constant of v1alpha1.
	reason  string
	message string
}

// plannedRule is a rule with what became of its resources.
type plannedRule struct {
	rule     *v1alpha1.WatchRule
	target   types.NamespacedName
	sources  []sourceKey
	problems []problem
}

// plan is what all rules together ask for.
type plan struct {
	claims map[sourceKey][]*claim
	rules  []plannedRule
	// unknown: some resource could not be resolved and should be tried again.
	unknown bool
	// resolved is what the resources were found to be.
	resolved map[schema.GroupResource]schema.GroupVersionResource
	// reset: discovery was refreshed for this plan.
	reset bool
}

// desired reads the informers: the targets, and the rules in a fixed order. A target
// that is being deleted counts until it is gone: what was done before its deletion
// is still on its way to it.
func (c *Capture) desired() (map[types.NamespacedName]target, []*v1alpha1.WatchRule) {
	targets := map[types.NamespacedName]target{}
	for _, object := range c.GitTargets.GetStore().List() {
		if t, ok := object.(*v1alpha1.GitTarget); ok {
			targets[types.NamespacedName{Namespace: t.Namespace, Name: t.Name}] = target{
				uid:        t.UID,
				generation: t.Generation,
				attributed: t.Spec.Attribution != v1alpha1.AttributionNone,
				prune:      t.Spec.Prune,
				suspended:  t.Spec.Suspend,
			}
		}
	}
	var rules []*v1alpha1.WatchRule
	for _, object := range c.WatchRules.GetStore().List() {
		if r, ok := object.(*v1alpha1.WatchRule); ok && r.DeletionTimestamp == nil {
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, func(a, b *v1alpha1.WatchRule) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return targets, rules
}

// plan computes the claims. A resource that cannot be captured is a problem of its
// rule; the rule's other resources are captured all the same.
func (c *Capture) plan(rules []*v1alpha1.WatchRule, targets map[types.NamespacedName]target) plan {
	p := plan{claims: map[sourceKey][]*claim{}, resolved: map[schema.GroupResource]schema.GroupVersionResource{}}
	if len(rules) > 0 && time.Since(c.refreshed) >= discoveryRefresh {
		p.refresh(c)
	}
	for _, rule := range rules {
		planned := plannedRule{rule: rule, target: types.NamespacedName{Namespace: rule.Namespace, Name: rule.Spec.GitTargetRef.Name}}
		if _, ok := targets[planned.target]; !ok {
			planned.problems = append(planned.problems, problem{v1alpha1.ReasonTargetNotFound,
				fmt.Sprintf("GitTarget %q does not exist in this namespace; create it or correct spec.gitTargetRef.name", planned.target.Name)})
			p.rules = append(p.rules, planned)
			continue
		}
		for _, entry := range rule.Spec.Resources {
			matches, err := metav1.LabelSelectorAsSelector(entry.LabelSelector)
			if entry.LabelSelector == nil {
				matches = labels.Everything()
			}
			if err != nil {
				planned.problems = append(planned.problems, problem{v1alpha1.ReasonUnknownResource, fmt.Sprintf("labelSelector: %v", err)})
				continue
			}
			s := selector{names: slices.Sorted(slices.Values(entry.Names)), matches: matches}
			if entry.LabelSelector != nil {
				s.labels = *entry.LabelSelector
			}
			groups := entry.APIGroups
			if len(groups) == 0 {
				groups = []string{""}
			}
			for _, group := range groups {
				for _, name := range entry.Resources {
					resource, bad := c.resolve(schema.GroupResource{Group: group, Resource: name}, &p)
					if bad != nil {
						planned.problems = append(planned.problems, *bad)
						p.unknown = p.unknown || bad.reason != v1alpha1.ReasonSensitiveResource
						continue
					}
					key := sourceKey{resource: resource, namespace: rule.Namespace}
					if !slices.Contains(planned.sources, key) {
						planned.sources = append(planned.sources, key)
					}
					p.add(key, planned.target, s)
				}
			}
		}
		p.rules = append(p.rules, planned)
	}
	c.resolved = p.resolved
	return p
}

// refresh has discovery asked again, instead of what it said before.
func (p *plan) refresh(c *Capture) {
	p.reset = true
	c.refreshed = time.Now()
	c.Mapper.Reset()
}

// add gives the target's claim on the source one more selector.
func (p *plan) add(key sourceKey, target types.NamespacedName, s selector) {
	for _, c := range p.claims[key] {
		if c.target == target {
			c.selectors = append(c.selectors, s)
			return
		}
	}
	p.claims[key] = append(p.claims[key], &claim{target: target, selectors: []selector{s}})
}

// resolve finds the version of a resource to watch. Sensitive resources are refused
// before anything is asked about them. What was found before stays, and its sources
// with what they know, until the resource is gone for certain: discovery also fails,
// or leaves groups out, while a server restarts. A version that its server answers
// 404 for may have made way for another one.
func (c *Capture) resolve(gr schema.GroupResource, p *plan) (schema.GroupVersionResource, *problem) {
	if manifest.SensitiveResource(gr.Group, gr.Resource) {
		return schema.GroupVersionResource{}, &problem{v1alpha1.ReasonSensitiveResource,
			fmt.Sprintf("%s would reach Git in the clear; remove them from spec.resources", gr)}
	}
	mapping, err := c.lookUp(gr)
	outdated := err == nil && c.notServed(mapping.Resource)
	if (apimeta.IsNoMatchError(err) || outdated) && !p.reset {
		p.refresh(c)
		mapping, err = c.lookUp(gr)
	}
	p.unknown = p.unknown || outdated
	if last, ok := c.resolved[gr]; ok && err != nil && !(apimeta.IsNoMatchError(err) && c.notServed(last)) {
		p.unknown = true
		p.resolved[gr] = last
		return last, nil
	}
	switch {
	case apimeta.IsNoMatchError(err):
		return schema.GroupVersionResource{}, &problem{v1alpha1.ReasonUnknownResource,
			fmt.Sprintf("the cluster does not serve %s; resources are named by their plural and API group", gr)}
	case err != nil:
		return schema.GroupVersionResource{}, &problem{v1alpha1.ReasonListFailed, fmt.Sprintf("discovery of %s: %v", gr, err)}
	case mapping.Scope.Name() != apimeta.RESTScopeNameNamespace:
		return schema.GroupVersionResource{}, &problem{v1alpha1.ReasonUnknownResource,
			fmt.Sprintf("%s are not namespaced; a WatchRule captures its own namespace", gr)}
	}
	p.resolved[gr] = mapping.Resource
	return mapping.Resource, nil
}

// notServed reports whether the server itself has answered a source of the resource
// that there is no such resource.
func (c *Capture) notServed(resource schema.GroupVersionResource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.sources {
		if key.resource != resource {
			continue
		}
		s.mu.Lock()
		failure := s.failure
		s.mu.Unlock()
		if apierrors.IsNotFound(failure) {
			return true
		}
	}
	return false
}

// lookUp finds the preferred mapping of exactly this group and plural. The mapper
// alone takes the core group for any group.
func (c *Capture) lookUp(gr schema.GroupResource) (*apimeta.RESTMapping, error) {
	candidates, err := c.Mapper.ResourcesFor(gr.WithVersion(""))
	if err != nil {
		return nil, err
	}
	for _, candidate := range candidates {
		if candidate.GroupResource() != gr {
			continue
		}
		kind, err := c.Mapper.KindFor(candidate)
		if err != nil {
			return nil, err
		}
		mapping, err := c.Mapper.RESTMapping(kind.GroupKind())
		if err != nil {
			return nil, err
		}
		if mapping.Resource.GroupResource() != gr {
			return c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
		return mapping, nil
	}
	return nil, &apimeta.NoResourceMatchError{PartialResource: gr.WithVersion("")}
}
