// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Extension is what an aggregated API server outside any pod needs: a port of
// 127.0.0.1 that is reserved for it, and a serving certificate that
// kube-apiserver accepts for its Service.
type Extension struct {
	Service, Namespace string
	// Port is where the server must listen; the APIService's spec.service.port.
	Port int
	// CertFile and KeyFile hold the serving certificate for
	// <service>.<namespace>.svc, localhost and 127.0.0.1.
	CertFile, KeyFile string
	// CAFile and CA (PEM) verify it; CA is the APIService's spec.caBundle.
	CAFile string
	CA     []byte

	cp *ControlPlane
}

// PrepareExtension reserves the port and makes the certificates. It can be
// called before Start, so that kube-apiserver's audit webhook can point at a
// server that comes later. The same Service gets the same port again, if it is
// still free when asked first.
func (cp *ControlPlane) PrepareExtension(ctx context.Context, service, namespace string) (*Extension, error) {
	serving, err := cp.pki.extension(namespace, service)
	if err != nil {
		return nil, err
	}
	port, err := cp.port(ctx, namespace+"/"+service)
	if err != nil {
		return nil, err
	}
	return &Extension{
		Service: service, Namespace: namespace, Port: port,
		CertFile: serving.CertFile, KeyFile: serving.KeyFile,
		CAFile: cp.pki.extensionCA.CertFile, CA: cp.pki.extensionCA.CertPEM,
		cp: cp,
	}, nil
}

// URL is where the server answers, without a path.
func (e *Extension) URL() string { return "https://" + hostPort(e.Port) }

// Ready returns nil when the server says that it is, to anyone who asks. It is
// meant for Command.Ready.
func (e *Extension) Ready(ctx context.Context) error {
	return get(ctx, httpClient(e.cp.pki.extensionCA), e.URL()+"/readyz")
}

// AuditUser makes the credentials that kube-apiserver's audit webhook shows to
// the server: a client certificate of the cluster's own authority, so that the
// server's delegated authentication knows the user.
func (e *Extension) AuditUser(user string, groups ...string) (certFile, keyFile string, err error) {
	c, err := e.cp.pki.user(user, groups)
	return c.CertFile, c.KeyFile, err
}

// WriteAuditKubeconfig writes the file for Audit.WebhookKubeconfig: events go
// to the server's path (such as "/audit") as user. through, when not empty, is the
// address to send them to in place of the server's own: somebody on this machine who
// passes them on.
func (e *Extension) WriteAuditKubeconfig(file, path, through, user string, groups ...string) error {
	c, err := e.cp.pki.user(user, groups)
	if err != nil {
		return err
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	server := e.URL()
	if through != "" {
		server = "https://" + through
	}
	_, err = writeKubeconfig(file, user,
		&clientcmdapi.AuthInfo{ClientCertificateData: c.CertPEM, ClientKeyData: c.KeyPEM},
		&clientcmdapi.Cluster{Server: server + path, CertificateAuthorityData: e.CA},
	)
	return err
}

// Expose makes the extension's Service an ExternalName of localhost, which is
// how kube-apiserver reaches a server outside any pod: endpoints with loopback
// addresses are refused by validation. It makes the namespace if it is missing
// and replaces a Service of another type.
func (e *Extension) Expose(ctx context.Context) error {
	config, err := e.cp.RESTConfig(Admin)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	services := client.CoreV1().Services(e.Namespace)
	have, err := services.Get(ctx, e.Service, metav1.GetOptions{})
	switch {
	case err == nil && have.Spec.Type == corev1.ServiceTypeExternalName && have.Spec.ExternalName == "localhost":
		return nil
	case err == nil:
		if err := services.Delete(ctx, e.Service, metav1.DeleteOptions{}); err != nil {
			return err
		}
	case !apierrors.IsNotFound(err):
		return err
	}
	_, err = services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: e.Service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	return err
}
