// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenLifetime is that of ServiceAccount tokens, in seconds: a day outlasts
// every test, and a demo that is left alone.
const tokenLifetime = 24 * 60 * 60

// Kubeconfig writes a kubeconfig with a client certificate for user in groups
// and returns its path, which depends on the user alone. Without groups the
// user keeps those of the last call; Admin is always in system:masters. The
// API server's address is right from Start on.
func (cp *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	c, err := cp.pki.user(user, groups)
	if err != nil {
		return "", err
	}
	return cp.writeKubeconfig(user, &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertPEM, ClientKeyData: c.KeyPEM,
	})
}

// RESTConfig is Kubeconfig for client-go, without client-side throttling.
func (cp *ControlPlane) RESTConfig(user string, groups ...string) (*rest.Config, error) {
	c, err := cp.pki.user(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: cp.URL(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: cp.pki.ca.CertPEM, CertData: c.CertPEM, KeyData: c.KeyPEM,
		},
	}, nil
}

// ServiceAccountKubeconfig writes a kubeconfig with a token of an existing
// ServiceAccount, good for a day, and returns its path.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := cp.RESTConfig(Admin)
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenLifetime)},
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	user := "system:serviceaccount:" + namespace + ":" + name
	return cp.writeKubeconfig(user, &clientcmdapi.AuthInfo{Token: token.Status.Token})
}

func (cp *ControlPlane) writeKubeconfig(user string, as *clientcmdapi.AuthInfo) (string, error) {
	return writeKubeconfig(
		filepath.Join(cp.config.Dir, "kubeconfig", fileName(user)+".yaml"), user, as,
		&clientcmdapi.Cluster{Server: cp.URL(), CertificateAuthorityData: cp.pki.ca.CertPEM},
	)
}

// writeKubeconfig replaces the file at once: another process may read it now.
func writeKubeconfig(path, user string, as *clientcmdapi.AuthInfo, to *clientcmdapi.Cluster) (string, error) {
	b, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"kommit": to},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: as},
		Contexts:       map[string]*clientcmdapi.Context{user: {Cluster: "kommit", AuthInfo: user}},
		CurrentContext: user,
	})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return "", err
	}
	if _, err := f.Write(b); err != nil {
		f.Close()
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return path, os.Rename(f.Name(), path)
}
