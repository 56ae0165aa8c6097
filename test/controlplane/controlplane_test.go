// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/controlplane/controlplanetest"
)

// TestControlPlane goes through the life of one folder, as starting is what
// takes long: start, use, stop, start again on the same data.
func TestControlPlane(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	cp := controlplanetest.Start(t, controlplane.Config{Dir: dir, WithControllerManager: true})
	url := cp.URL()
	admin := clientFor(t, cp, controlplane.Admin)

	t.Run("admin may do all", func(t *testing.T) {
		namespaces, err := admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(namespaces.Items) == 0 {
			t.Error("no namespaces")
		}
	})
	t.Run("the version is stamped", func(t *testing.T) {
		version, err := admin.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if version.Major != "1" || version.Minor != "37" {
			t.Errorf("version %s.%s, want 1.37", version.Major, version.Minor)
		}
	})
	t.Run("a certificate carries user and groups", func(t *testing.T) { usersAndGroups(t, cp) })
	t.Run("a token carries a ServiceAccount", func(t *testing.T) { serviceAccount(t, cp) })
	t.Run("kubectl acts as a user and finds plugins", func(t *testing.T) { kubectl(t, cp) })
	t.Run("an extension gets its Service", func(t *testing.T) { extension(t, cp, admin) })
	t.Run("one folder has one owner", func(t *testing.T) {
		_, err := controlplane.New(controlplane.Config{Dir: dir, BinDir: cp.BinDir()})
		var inUse *controlplane.InUseError
		if !errors.As(err, &inUse) {
			t.Errorf("a second owner gets %v, want an *InUseError", err)
		}
	})

	if _, err := admin.CoreV1().Namespaces().Create(ctx, namespace("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pids := pidsOf(t, cp)
	if err := cp.Stop(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (%d) is still there after Stop: %v", name, pid, err)
		}
	}
	if err := cp.Wait(ctx); err != nil {
		t.Errorf("Wait after Stop: %v", err)
	}

	again := controlplanetest.Start(t, controlplane.Config{Dir: dir})
	if again.URL() != url {
		t.Errorf("started again at %s, was %s: kubeconfigs are no longer true", again.URL(), url)
	}
	if _, err := clientFor(t, again, controlplane.Admin).CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the data of the first start is gone: %v", err)
	}
	etcd := again.Process(controlplane.Etcd)
	etcd.Kill()
	var exited *controlplane.ExitedError
	if err := again.Wait(ctx); !errors.As(err, &exited) || exited.Name != controlplane.Etcd {
		t.Errorf("Wait after etcd's death: %v", err)
	}
}

func usersAndGroups(t *testing.T, cp *controlplane.ControlPlane) {
	alice := clientFor(t, cp, "alice@example.org", "dev", "ops")
	if _, err := alice.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("alice lists Secrets: %v, want Forbidden", err)
	}
	for user, want := range map[string]string{"alice@example.org": "dev,ops", "system:someone": ""} {
		out, _, err := cp.Kubectl(t.Context(), user, "auth", "whoami",
			"--output=jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
		if err != nil {
			t.Fatal(err)
		}
		name, groups, _ := strings.Cut(out, " ")
		if name != user {
			t.Errorf("%s is seen as %s", user, name)
		}
		for group := range strings.SplitSeq(want, ",") {
			if !strings.Contains(groups, group) {
				t.Errorf("%s is in %s, not in %s", user, groups, group)
			}
		}
	}
}

func serviceAccount(t *testing.T, cp *controlplane.ControlPlane) {
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), "default", "default")
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := cp.KubectlCommand(t.Context(), controlplane.Admin, "auth", "whoami",
		"--kubeconfig="+kubeconfig, "--output=jsonpath={.status.userInfo.username}")
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if want := "system:serviceaccount:default:default"; err != nil || string(out) != want {
		t.Errorf("whoami = %s, %v, want %s", out, err, want)
	}
	if _, err := cp.ServiceAccountKubeconfig(t.Context(), "default", "nobody"); !apierrors.IsNotFound(err) {
		t.Errorf("a token for a missing ServiceAccount: %v", err)
	}
}

func kubectl(t *testing.T, cp *controlplane.ControlPlane) {
	manifest := strings.NewReader(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`)
	if _, _, err := cp.KubectlInput(t.Context(), controlplane.Admin, manifest, "apply", "--filename=-"); err != nil {
		t.Error(err)
	}
	_, stderr, err := cp.Kubectl(t.Context(), "bob", "get", "configmap", "a")
	var refused *controlplane.KubectlError
	if !errors.As(err, &refused) || refused.Stderr != stderr || stderr == "" {
		t.Errorf("bob reads: %v, want a *KubectlError with what kubectl said", err)
	}
	cmd, err := cp.KubectlCommand(t.Context(), "bob", "version")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range cmd.Env {
		if home, ok := strings.CutPrefix(e, "HOME="); ok && home != os.Getenv("HOME") && !strings.HasPrefix(home, cp.Dir()) {
			t.Errorf("kubectl's HOME is %s, outside the state folder", home)
		}
	}
}

func extension(t *testing.T, cp *controlplane.ControlPlane, admin kubernetes.Interface) {
	ctx := t.Context()
	e, err := cp.PrepareExtension(ctx, "ext", "ext-system")
	if err != nil {
		t.Fatal(err)
	}
	// As shipped for clusters: a Service with endpoints.
	if _, err := admin.CoreV1().Namespaces().Create(ctx, namespace("ext-system"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shipped := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "ext"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	if _, err := admin.CoreV1().Services("ext-system").Create(ctx, shipped, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Expose(ctx); err != nil {
			t.Fatal(err)
		}
	}
	service, err := admin.CoreV1().Services("ext-system").Get(ctx, "ext", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.Type != corev1.ServiceTypeExternalName || service.Spec.ExternalName != "localhost" {
		t.Errorf("Service is %s %s", service.Spec.Type, service.Spec.ExternalName)
	}
}

func clientFor(t *testing.T, cp *controlplane.ControlPlane, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config, err := cp.RESTConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func pidsOf(t *testing.T, cp *controlplane.ControlPlane) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, name := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager} {
		p := cp.Process(name)
		if p == nil {
			t.Fatalf("%s does not run", name)
		}
		pids[name] = p.PID()
	}
	return pids
}
