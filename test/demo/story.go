// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/kommit-dev/kommit/test/stack"
)

const (
	namespace  = "shop"
	target     = "prod"
	branch     = "main"
	repository = "shop"
	bundle     = "artifacts/examples/bundle.yaml"
)

// story prints each command before its output. The first error ends it.
type story struct {
	stack *stack.Stack
	out   io.Writer
	err   error
}

// tell plays the story.
func (st *story) tell(ctx context.Context) error {
	if err := st.stack.SetUpShop(ctx, stack.Shop{
		Namespace: namespace, Target: target, Branch: branch, Repository: repository, Users: []string{"alice", "bob"},
	}); err != nil {
		return err
	}

	st.chapter("One person saves (UC1)")
	st.kubectl(ctx, "alice", "create", "deployment", "web", "--image=nginx:1.27", "-n", namespace)
	st.kubectl(ctx, "alice", "set", "image", "deployment/web", "nginx=nginx:1.28", "-n", namespace)
	st.say("Nothing is pushed until somebody saves:")
	st.git(ctx, "rev-list", "--count", "--all")
	st.kubectl(ctx, "alice", "create", "commitrequest", "web-1-28", "--target", target, "-m", "Roll out nginx 1.28", "-n", namespace)
	st.kubectl(ctx, "alice", "wait", "--for=condition=Ready", "commitrequest/web-1-28", "--timeout=60s", "-n", namespace)
	st.kubectl(ctx, "alice", "get", "commitrequests", "-n", namespace)
	st.git(ctx, "log", "--stat", branch)

	st.chapter("A bundle, the CommitRequest first (UC2)")
	st.cat(ctx, "alice", bundle)
	st.kubectl(ctx, "alice", "apply", "-f", bundle, "-n", namespace)
	st.kubectl(ctx, "alice", "wait", "--for=condition=Ready", "commitrequest", "--all", "--timeout=60s", "-n", namespace)
	st.git(ctx, "log", "-1", "--stat", branch)

	st.chapter("Two people at once, on one target")
	st.kubectl(ctx, "alice", "scale", "deployment/web", "--replicas=3", "-n", namespace)
	st.kubectl(ctx, "bob", "create", "configmap", "prices", "--from-literal=apple=1.20", "-n", namespace)
	st.kubectl(ctx, "alice", "create", "configmap", "banner", "--from-literal=text=Open on Sunday", "-n", namespace)
	st.kubectl(ctx, "bob", "create", "commitrequest", "bob-prices", "--target", target, "-m", "Prices for December", "-n", namespace)
	st.kubectl(ctx, "alice", "create", "commitrequest", "alice-sunday", "--target", target, "-m", "Get ready for Sunday", "-n", namespace)
	st.kubectl(ctx, "alice", "wait", "--for=condition=Ready", "commitrequest", "--all", "--timeout=60s", "-n", namespace)
	st.git(ctx, "log", "-2", "--stat", branch)

	st.chapter("A save with nothing to save")
	st.kubectl(ctx, "bob", "create", "commitrequest", "bob-nothing", "--target", target, "-m", "Again", "--attach-timeout=0s", "-n", namespace)
	st.kubectl(ctx, "bob", "wait", "--for=condition=Ready", "commitrequest/bob-nothing", "--timeout=60s", "-n", namespace)
	st.kubectl(ctx, "bob", "get", "commitrequests", "-n", namespace)

	st.chapter("What the remote holds now")
	st.git(ctx, "log", "--stat", branch)
	if st.err != nil {
		return st.err
	}
	return st.goOn(ctx)
}

// goOn prints the lines to copy.
func (st *story) goOn(ctx context.Context) error {
	alice, err := st.stack.ControlPlane.Kubeconfig("alice")
	if err != nil {
		return err
	}
	bob, err := st.stack.ControlPlane.Kubeconfig("bob")
	if err != nil {
		return err
	}
	st.chapter("Go on by hand")
	fmt.Fprintf(st.out, `In another terminal:

  export PATH=%s:%s:$PATH
  export KUBECONFIG=%s      # or as bob: %s
  kubectl create configmap hello --from-literal=who=me -n %s
  kubectl create commitrequest --target %s -m "My first save" -n %s
  kubectl get commitrequests -w -n %s
  git --git-dir=%s log --stat %s

Logs: %s
Ctrl-C here stops everything; make demo-down deletes it.
`, st.stack.PluginDir(), st.stack.BinDir(), alice, bob, namespace, target, namespace, namespace,
		st.stack.Git.Repository(repository).Dir, branch, st.stack.ControlPlane.LogDir())
	return nil
}

func (st *story) chapter(title string) {
	if st.err == nil {
		fmt.Fprintf(st.out, "\n== %s\n\n", title)
	}
}

func (st *story) say(text string) {
	if st.err == nil {
		fmt.Fprintf(st.out, "# %s\n", text)
	}
}

// kubectl runs one as a user, as the user would type it.
func (st *story) kubectl(ctx context.Context, user string, args ...string) {
	if st.err != nil {
		return
	}
	fmt.Fprintf(st.out, "%s$ kubectl %s\n", user, typed(args))
	cmd, err := st.stack.ControlPlane.KubectlCommand(ctx, user, args...)
	if err != nil {
		st.err = err
		return
	}
	cmd.Dir = st.stack.Root()
	st.show(cmd)
}

func (st *story) cat(ctx context.Context, user, file string) {
	if st.err != nil {
		return
	}
	fmt.Fprintf(st.out, "%s$ cat %s\n", user, file)
	cmd := exec.CommandContext(ctx, "cat", file)
	cmd.Dir = st.stack.Root()
	st.show(cmd)
}

// git looks at the remote repository itself.
func (st *story) git(ctx context.Context, args ...string) {
	if st.err != nil {
		return
	}
	fmt.Fprintf(st.out, "$ git %s\n", typed(args))
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager", "--git-dir=" + st.stack.Git.Repository(repository).Dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	st.show(cmd)
}

func (st *story) show(cmd *exec.Cmd) {
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	fmt.Fprintf(st.out, "%s\n", both.Bytes())
	if err != nil {
		st.err = fmt.Errorf("%s: %w", typed(cmd.Args), err)
	}
}

// typed quotes arguments the way a person would.
func typed(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \"'$&|;<>(){}*?!#~`\\\n") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted[i] = arg
	}
	return strings.Join(quoted, " ")
}
