// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	etcdPeerPort = "etcd-peer"
	// serviceCIDR is where ClusterIPs come from; nothing answers there.
	serviceCIDR = "10.96.0.0/16"
)

// absentControllers are those that act for nodes and disks, which this control
// plane has none of. The program refuses to start on a name it does not know.
const absentControllers = "-node-ipam-controller,-node-lifecycle-controller,-persistentvolume-attach-detach-controller," +
	"-persistentvolume-binder-controller,-persistentvolume-expander-controller"

func (cp *ControlPlane) binary(name string) string { return filepath.Join(cp.config.BinDir, name) }

func (cp *ControlPlane) etcd(ctx context.Context) (part, error) {
	port, err := cp.port(ctx, Etcd)
	if err != nil {
		return part{}, err
	}
	peerPort, err := cp.port(ctx, etcdPeerPort)
	if err != nil {
		return part{}, err
	}
	url, peer := "https://"+hostPort(port), "https://"+hostPort(peerPort)
	k := cp.pki
	client := httpClient(k.etcdCA, k.etcdClient)
	return part{
		ports: []string{Etcd, etcdPeerPort},
		Command: Command{
			Name: Etcd,
			Path: cp.binary(Etcd),
			Env:  withoutProxies(os.Environ()),
			Args: []string{
				"--name=kommit",
				"--data-dir=" + filepath.Join(cp.config.Dir, "etcd"),
				"--unsafe-no-fsync", // a crash of the machine may lose the data, a crash of etcd not
				"--log-level=warn",
				"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
				"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
				"--initial-cluster=kommit=" + peer,
				"--cert-file=" + k.etcd.CertFile, "--key-file=" + k.etcd.KeyFile,
				"--client-cert-auth", "--trusted-ca-file=" + k.etcdCA.CertFile,
				"--peer-cert-file=" + k.etcd.CertFile, "--peer-key-file=" + k.etcd.KeyFile,
				"--peer-client-cert-auth", "--peer-trusted-ca-file=" + k.etcdCA.CertFile,
			},
			Ready: func(ctx context.Context) error { return get(ctx, client, url+"/health") },
		},
	}, nil
}

func (cp *ControlPlane) apiServer(ctx context.Context) (part, error) {
	port, err := cp.port(ctx, APIServer)
	if err != nil {
		return part{}, err
	}
	k := cp.pki
	admin, err := k.user(Admin, nil)
	if err != nil {
		return part{}, err
	}
	client := httpClient(k.ca, admin)
	args := []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		// Endpoints with loopback addresses are refused, so none are made.
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--etcd-servers=https://" + hostPort(cp.recordedPort(Etcd)), "--etcd-cafile=" + k.etcdCA.CertFile,
		"--etcd-certfile=" + k.etcdClient.CertFile, "--etcd-keyfile=" + k.etcdClient.KeyFile,
		"--tls-cert-file=" + k.apiServer.CertFile, "--tls-private-key-file=" + k.apiServer.KeyFile,
		"--client-ca-file=" + k.ca.CertFile, "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + k.serviceAccountPublic,
		"--service-account-signing-key-file=" + k.serviceAccountPrivate,
		"--requestheader-client-ca-file=" + k.frontProxyCA.CertFile,
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + k.frontProxy.CertFile, "--proxy-client-key-file=" + k.frontProxy.KeyFile,
	}
	args = append(args, cp.config.Audit.flags()...)
	return part{
		ports: []string{APIServer},
		Command: Command{
			Name:  APIServer,
			Path:  cp.binary(APIServer),
			Env:   withoutProxies(os.Environ()),
			Args:  append(args, cp.config.APIServerArgs...),
			Ready: func(ctx context.Context) error { return get(ctx, client, "https://"+hostPort(port)+"/readyz") },
		},
	}, nil
}

func (a Audit) flags() []string {
	var flags []string
	if a.Policy != "" {
		flags = append(flags, "--audit-policy-file="+a.Policy)
	}
	if a.WebhookKubeconfig == "" {
		return flags
	}
	flags = append(flags, "--audit-webhook-config-file="+a.WebhookKubeconfig)
	if a.BatchFlags == nil {
		return append(flags, RecommendedAuditFlags()...)
	}
	return append(flags, a.BatchFlags...)
}

func (cp *ControlPlane) controllerManager(ctx context.Context) (part, error) {
	port, err := cp.port(ctx, ControllerManager)
	if err != nil {
		return part{}, err
	}
	kubeconfig, err := cp.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return part{}, err
	}
	config, err := cp.RESTConfig(Admin)
	if err != nil {
		return part{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return part{}, err
	}
	return part{
		ports: []string{ControllerManager},
		Command: Command{
			Name: ControllerManager,
			Path: cp.binary(ControllerManager),
			Env:  withoutProxies(os.Environ()),
			Args: []string{
				"--kubeconfig=" + kubeconfig,
				"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
				"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
				"--tls-cert-file=" + cp.pki.apiServer.CertFile, "--tls-private-key-file=" + cp.pki.apiServer.KeyFile,
				"--leader-elect=false", "--use-service-account-credentials",
				"--service-account-private-key-file=" + cp.pki.serviceAccountPrivate,
				"--root-ca-file=" + cp.pki.ca.CertFile,
				"--controllers=*," + absentControllers,
			},
			// Made by the controller manager: it is at work.
			Ready: func(ctx context.Context) error {
				_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
				return err
			},
		},
	}, nil
}

func (cp *ControlPlane) recordedPort(name string) int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.record.Ports[name]
}

// withoutProxies drops proxy settings: these programs speak to loopback only.
func withoutProxies(env []string) []string {
	var kept []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY":
		default:
			kept = append(kept, e)
		}
	}
	return kept
}

// httpClient asks servers of an authority, as whom the certificates say.
func httpClient(ca *authority, as ...certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	var certificates []tls.Certificate
	for _, c := range as {
		certificates = append(certificates, tls.Certificate{Certificate: [][]byte{c.cert.Raw}, PrivateKey: c.key})
	}
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			// Each question is asked on a connection of its own: an answer says
			// that new ones are accepted, and none keeps the server from ending.
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				MinVersion:   tls.VersionTLS12,
				RootCAs:      roots,
				Certificates: certificates,
			},
		},
	}
}

// StatusError is an answer of a health endpoint other than 200.
type StatusError struct {
	URL  string
	Code int
}

func (e *StatusError) Error() string { return fmt.Sprintf("%s answers %d", e.URL, e.Code) }

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return &StatusError{URL: url, Code: response.StatusCode}
	}
	return nil
}
