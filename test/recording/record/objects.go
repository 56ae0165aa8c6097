// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// namespace is where the script acts.
const namespace = "shop"

// rootCertificates is the ConfigMap that a controller makes in every namespace.
const rootCertificates = "kube-root-ca.crt"

var (
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	pods            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	widgets         = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

	namespaces          = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	definitions         = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

type fields = map[string]any

func object(apiVersion, kind, name string, rest fields) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields{"apiVersion": apiVersion, "kind": kind, "metadata": fields{"name": name}}}
	maps.Copy(u.Object, rest)
	return u
}

func configMap(name string, data fields) *unstructured.Unstructured {
	return object("v1", "ConfigMap", name, fields{"data": data})
}

func widget(name string, size int64) *unstructured.Unstructured {
	return object("example.com/v1", "Widget", name, fields{"spec": fields{"size": size}})
}

func service(name string) *unstructured.Unstructured {
	return object("v1", "Service", name, fields{"spec": fields{"selector": fields{"app": name}, "ports": []any{fields{"port": int64(80)}}}})
}

func pod(name string) *unstructured.Unstructured {
	return object("v1", "Pod", name, fields{"spec": podSpec()})
}

func podSpec() fields {
	return fields{"containers": []any{fields{"name": "web", "image": "example.com/web:1"}}}
}

func deployment(name string, replicas int64) *unstructured.Unstructured {
	labels := fields{"app": name}
	return object("apps/v1", "Deployment", name, fields{"spec": fields{
		"replicas": replicas, "selector": fields{"matchLabels": labels},
		"template": fields{"metadata": fields{"labels": labels}, "spec": podSpec()},
	}})
}

func labelled(u *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	u.SetLabels(map[string]string{key: value})
	return u
}

func withFinalizer(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetFinalizers([]string{"example.com/hold"})
	return u
}

// prepare makes what has to be there before the script: the kind Widget, and a
// service account outside of the namespace.
func prepare(ctx context.Context, admin dynamic.Interface) error {
	text := fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", fields{"spec": fields{
		"group": "example.com", "scope": "Namespaced",
		"names": fields{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		"versions": []any{fields{
			"name": "v1", "served": true, "storage": true,
			"schema":       fields{"openAPIV3Schema": fields{"type": "object", "properties": fields{"spec": text, "status": text}}},
			"subresources": fields{"status": fields{}, "scale": fields{"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
		}},
	}})
	if _, err := admin.Resource(definitions).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, u := range []struct {
		client dynamic.ResourceInterface
		object *unstructured.Unstructured
	}{
		{admin.Resource(namespaces), object("v1", "Namespace", "ops", nil)},
		{admin.Resource(serviceAccounts).Namespace("ops"), object("v1", "ServiceAccount", "deployer", nil)},
		{admin.Resource(clusterRoleBindings), object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "deployer", fields{
			"roleRef":  fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			"subjects": []any{fields{"kind": "ServiceAccount", "namespace": "ops", "name": "deployer"}},
		})},
	} {
		if _, err := u.client.Create(ctx, u.object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return established(ctx, admin)
}

// established waits until the kind Widget is served.
func established(ctx context.Context, admin dynamic.Interface) error {
	stream, err := admin.Resource(definitions).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=widgets.example.com"})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			if c, ok := c.(fields); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
	}
	return ctx.Err()
}
