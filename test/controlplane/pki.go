// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// frontProxyName is the only name that may pass on users by header.
const frontProxyName = "front-proxy-client"

// pki is all the keys and certificates of one state folder.
type pki struct {
	dir string

	ca, frontProxyCA, etcdCA, extensionCA *authority
	apiServer, frontProxy                 certificate
	etcd, etcdClient                      certificate
	serviceAccountPrivate                 string
	serviceAccountPublic                  string

	mu sync.Mutex // guards the files of users and extensions
}

func newPKI(dir string, now time.Time) (*pki, error) {
	k := &pki{dir: dir}
	for name, ca := range map[string]**authority{
		"ca": &k.ca, "front-proxy-ca": &k.frontProxyCA, "etcd-ca": &k.etcdCA, "extension-ca": &k.extensionCA,
	} {
		var err error
		if *ca, err = newAuthority(dir, name, now); err != nil {
			return nil, err
		}
	}
	for _, c := range []struct {
		into *certificate
		by   *authority
		name string
		says subject
	}{
		{&k.apiServer, k.ca, "kube-apiserver", subject{Name: "kube-apiserver", Hosts: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}},
		{&k.frontProxy, k.frontProxyCA, frontProxyName, subject{Name: frontProxyName, Client: true}},
		{&k.etcd, k.etcdCA, "etcd", subject{Name: "etcd", Hosts: []string{"localhost"}, Client: true}},
		{&k.etcdClient, k.etcdCA, "etcd-client", subject{Name: "kube-apiserver", Client: true}},
	} {
		var err error
		if *c.into, err = c.by.ensure(dir, c.name, c.says, now); err != nil {
			return nil, err
		}
	}
	var err error
	k.serviceAccountPrivate, k.serviceAccountPublic, err = serviceAccountKeys(dir)
	return k, err
}

// user returns the client certificate of a Kubernetes user in exactly those
// groups. Without groups it is the one issued last for that user, or a new one.
func (k *pki) user(name string, groups []string) (certificate, error) {
	if name == Admin && len(groups) == 0 {
		groups = []string{"system:masters"}
	}
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	k.mu.Lock()
	defer k.mu.Unlock()
	dir, file := filepath.Join(k.dir, "users"), fileName(name)
	if len(groups) == 0 {
		if have, err := load(dir, file); err == nil {
			groups = have.cert.Subject.Organization
		}
	}
	return k.ca.ensure(dir, file, subject{Name: name, Groups: groups, Client: true}, time.Now())
}

// extension returns a serving certificate for the Service.
func (k *pki) extension(namespace, service string) (certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	host := service + "." + namespace + ".svc"
	return k.extensionCA.ensure(filepath.Join(k.dir, "extensions"), fileName(host), subject{
		Name:  host,
		Hosts: []string{host, "localhost"},
	}, time.Now())
}

// fileName makes a file name of any user name; a colon in it would split
// KUBECONFIG.
func fileName(name string) string { return url.QueryEscape(name) }
