// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// Shop is a namespace whose Deployments and ConfigMaps are saved to a
// repository of its own, and the people who may edit and save there.
type Shop struct {
	Namespace, Target, Branch, Repository string
	Users                                 []string
	// Attribution is the target's; empty for the default.
	Attribution string
	// Path is the target's; empty for the root.
	Path string
	// URL of the repository; empty for the Git server's own.
	URL string
	// IdleTimeout and MaxDuration are the target's; zero for the defaults.
	IdleTimeout, MaxDuration time.Duration
	// Prune is the target's.
	Prune bool
}

var shopManifests = template.Must(template.New("shop").Parse(`
apiVersion: v1
kind: Namespace
metadata:
  name: {{.Namespace}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: people
  namespace: {{.Namespace}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: edit
subjects:
{{- range .Users}}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {{.}}
{{- end}}
---
apiVersion: v1
kind: Secret
metadata:
  name: git-credentials
  namespace: {{.Namespace}}
type: kubernetes.io/basic-auth
stringData:
  username: {{.Username}}
  password: {{.Password}}
---
apiVersion: kommit.dev/v1alpha1
kind: GitProvider
metadata:
  name: git
  namespace: {{.Namespace}}
spec:
  url: {{.URL}}
  secretRef:
    name: git-credentials
  commit:
    author:
      emailDomain: example.com
---
apiVersion: kommit.dev/v1alpha1
kind: GitTarget
metadata:
  name: {{.Target}}
  namespace: {{.Namespace}}
spec:
  gitProviderRef:
    name: git
  branch: {{.Branch}}
  path: {{printf "%q" .Path}}
{{- if or .IdleTimeout .MaxDuration}}
  window:
{{- with .IdleTimeout}}
    idleTimeout: {{.}}
{{- end}}
{{- with .MaxDuration}}
    maxDuration: {{.}}
{{- end}}
{{- end}}
{{- if .Prune}}
  prune: true
{{- end}}
{{- with .Attribution}}
  attribution: {{.}}
{{- end}}
---
apiVersion: kommit.dev/v1alpha1
kind: WatchRule
metadata:
  name: apps
  namespace: {{.Namespace}}
spec:
  gitTargetRef:
    name: {{.Target}}
  resources:
  - apiGroups: ["apps"]
    resources: ["deployments"]
  - apiGroups: [""]
    resources: ["configmaps", "services"]
`))

// SetUpShop makes the repository, unless another shop has it already, and everything in the namespace, as an
// administrator, and returns when kommit says that all of it is ready.
func (s *Stack) SetUpShop(ctx context.Context, shop Shop) error {
	repository := s.Git.Repository(shop.Repository)
	if _, err := os.Stat(repository.Dir); errors.Is(err, fs.ErrNotExist) {
		if repository, err = s.Git.Create(ctx, shop.Repository); err != nil {
			return err
		}
	}
	var manifests strings.Builder
	shop.URL = cmp.Or(shop.URL, repository.URL)
	err := shopManifests.Execute(&manifests, struct {
		Shop
		Username, Password string
	}{shop, GitUsername, GitPassword})
	if err != nil {
		return err
	}
	if err := s.apply(ctx, manifests.String()); err != nil {
		return err
	}
	_, _, err = s.ControlPlane.Kubectl(ctx, controlplane.Admin, "wait", "--for=condition=Ready", "--timeout=60s", "--namespace="+shop.Namespace,
		"gitprovider/git", "gittarget/"+shop.Target, "watchrule/apps")
	return err
}
