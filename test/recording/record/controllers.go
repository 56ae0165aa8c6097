// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/test/recording"
)

// controller is the user that a controller of kube-controller-manager is.
func controller(name string) string { return "system:serviceaccount:kube-system:" + name }

// UnknownAuthorError says that a version is neither the script's nor a known
// controller's work.
type UnknownAuthorError struct{ What string }

func (e *UnknownAuthorError) Error() string {
	return "nobody is known to have made " + e.What + ": say in the recorder which controller does"
}

// controllersDeeds are the changes in list that the script did not make. Who did is
// known from what the controllers are for, not from audit. Objects that a controller
// owns are left out: they are never captured.
func controllersDeeds(list []seen, script []recording.Deed) ([]recording.Deed, error) {
	type version struct{ uid, resourceVersion string }
	known := map[version]bool{}
	for _, d := range script {
		known[version{d.UID, d.ResourceVersion}] = true
	}
	var deeds []recording.Deed
	last := map[types.UID]*unstructured.Unstructured{}
	for _, s := range list {
		u := s.object
		before := last[u.GetUID()]
		last[u.GetUID()] = u
		d := recording.Deed{Case: "controller", UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
		if s.kind == watch.Deleted || u.GetDeletionTimestamp() != nil {
			d.ResourceVersion = ""
		}
		if known[version{d.UID, d.ResourceVersion}] || metav1.GetControllerOf(u) != nil {
			continue
		}
		known[version{d.UID, d.ResourceVersion}] = true
		if d.Author = authorOf(s, before); d.Author == "" {
			return nil, &UnknownAuthorError{What: fmt.Sprintf("%s %s %s, version %s", s.kind, s.resource.Resource, u.GetName(), u.GetResourceVersion())}
		}
		deeds = append(deeds, d)
	}
	return deeds, nil
}

// authorOf names the controller that made the object so from what it was before;
// empty if none does such a thing.
func authorOf(s seen, before *unstructured.Unstructured) string {
	u := s.object
	switch {
	case s.resource == configMaps && u.GetName() == rootCertificates:
		return controller("root-ca-cert-publisher")
	case s.resource == serviceAccounts && u.GetName() == "default":
		return controller("service-account-controller")
	case before == nil || s.kind == watch.Deleted || u.GetDeletionTimestamp() != nil:
		return "" // only what it owns does a controller of this cluster make and delete
	case metav1.GetControllerOf(before) != nil, len(u.GetFinalizers()) < len(before.GetFinalizers()):
		return controller("generic-garbage-collector")
	case s.resource == replicaSets && !apiequality.Semantic.DeepEqual(u.Object["status"], before.Object["status"]):
		return controller("replicaset-controller")
	case s.resource == deployments:
		return controller("deployment-controller")
	}
	return ""
}
