// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// isolate keeps the user's own kubeconfig and cache out of a test.
func isolate(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
}

// aggregatedServer stands for kube-apiserver with kommit behind it: it answers
// what the plugin asks of kommit.dev/v1alpha1, and notes it.
type aggregatedServer struct {
	*httptest.Server
	targets []string         // GitTargets in namespace shop
	refuse  *metav1.Status   // answer to a create, when set
	warning string           // sent with the answer to a create
	creates []createdRequest // in order
}

type createdRequest struct {
	Query url.Values
	Body  v1alpha1.CommitRequest
}

func newAggregatedServer(t *testing.T) *aggregatedServer {
	s := &aggregatedServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/kommit.dev/v1alpha1/namespaces/shop/gittargets", func(w http.ResponseWriter, _ *http.Request) {
		list := v1alpha1.GitTargetList{
			TypeMeta: metav1.TypeMeta{APIVersion: "kommit.dev/v1alpha1", Kind: "GitTargetList"},
			Items:    []v1alpha1.GitTarget{},
		}
		for _, name := range s.targets {
			list.Items = append(list.Items, v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}})
		}
		answer(t, w, http.StatusOK, list)
	})
	mux.HandleFunc("POST /apis/kommit.dev/v1alpha1/namespaces/shop/commitrequests", func(w http.ResponseWriter, r *http.Request) {
		var got createdRequest
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&got.Body); err != nil {
			t.Errorf("body of the create: %v", err)
		}
		got.Query = r.URL.Query()
		s.creates = append(s.creates, got)
		if s.warning != "" {
			w.Header().Set("Warning", `299 - "`+s.warning+`"`)
		}
		if s.refuse != nil {
			answer(t, w, int(s.refuse.Code), s.refuse)
			return
		}
		stored := got.Body
		if stored.Name == "" {
			stored.Name = stored.GenerateName + "7qx2d"
		}
		stored.Namespace, stored.UID, stored.ResourceVersion = "shop", types.UID("0001"), "12"
		stored.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: got.Query.Get("fieldManager")}}
		stored.Spec.Window.Attach = v1alpha1.AttachCurrentOrNext
		stored.Spec.RequestedBy.Username = "alice"
		stored.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForWindow,
		}}
		answer(t, w, http.StatusCreated, stored)
	})
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the plugin asked for %s %s", r.Method, r.URL)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func answer(t *testing.T, w http.ResponseWriter, code int, body any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		t.Error(err)
	}
}

// run is the plugin as a process: exit code, stdout, stderr.
func (s *aggregatedServer) run(t *testing.T, invokedAs string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	isolate(t)
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	args = append([]string{invokedAs}, args...)
	code = Main(t.Context(), append(args, "-n", "shop", "--server", s.URL), streams)
	return code, out.String(), errOut.String()
}

const createForm = "/usr/local/bin/kubectl-create-commitrequest"

func TestCreate(t *testing.T) {
	named := v1alpha1.CommitRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kommit.dev/v1alpha1", Kind: "CommitRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "fix-1", Namespace: "shop"},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
			Message:      "Raise limits",
		},
	}
	generated := *named.DeepCopy()
	generated.Name, generated.GenerateName = "", "save-"
	query := url.Values{"fieldManager": {"kubectl-create"}, "fieldValidation": {"Strict"}}
	dryRun := url.Values{"fieldManager": {"kubectl-create"}, "fieldValidation": {"Strict"}, "dryRun": {"All"}}

	for _, tc := range []struct {
		name      string
		invokedAs string
		args      []string
		want      *createdRequest // nil: nothing is sent
		stdout    string
	}{{
		name: "named",
		args: []string{"fix-1", "--target=prod", "-m", "Raise limits"},
		want: &createdRequest{query, named}, stdout: "commitrequest.kommit.dev/fix-1 created\n",
	}, {
		name: "name left to the server",
		args: []string{"--target=prod", "-m", "Raise limits"},
		want: &createdRequest{query, generated}, stdout: "commitrequest.kommit.dev/save-7qx2d created\n",
	}, {
		name: "-o name", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "-o", "name"},
		want: &createdRequest{query, named}, stdout: "commitrequest.kommit.dev/fix-1\n",
	}, {
		name: "-o jsonpath", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "-o", "jsonpath={.spec.requestedBy.username}"},
		want: &createdRequest{query, named}, stdout: "alice",
	}, {
		name: "-o json", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "-o", "json"},
		want: &createdRequest{query, named}, stdout: golden(t, "created.json"),
	}, {
		name: "-o yaml", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "-o", "yaml"},
		want: &createdRequest{query, named}, stdout: golden(t, "created.yaml"),
	}, {
		name: "server dry run", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "--dry-run=server"},
		want: &createdRequest{dryRun, named}, stdout: "commitrequest.kommit.dev/fix-1 created (server dry run)\n",
	}, {
		name: "client dry run", args: []string{"fix-1", "--target=prod", "-m", "Raise limits", "--dry-run=client"},
		stdout: "commitrequest.kommit.dev/fix-1 created (dry run)\n",
	}, {
		name: "kubectl commit", invokedAs: "kubectl-commit", args: []string{"--target=prod", "-m", "Raise limits"},
		want: &createdRequest{query, generated}, stdout: "commitrequest.kommit.dev/save-7qx2d created\n",
	}, {
		name: "kubectl commit --name", invokedAs: "kubectl-commit", args: []string{"--name=fix-1", "--target=prod", "-m", "Raise limits"},
		want: &createdRequest{query, named}, stdout: "commitrequest.kommit.dev/fix-1 created\n",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.invokedAs == "" {
				tc.invokedAs = createForm
			}
			server := newAggregatedServer(t)
			code, stdout, stderr := server.run(t, tc.invokedAs, tc.args...)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			if diff := cmp.Diff(tc.stdout, stdout); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			var want []createdRequest
			if tc.want != nil {
				want = append(want, *tc.want)
			}
			if diff := cmp.Diff(want, server.creates); diff != "" {
				t.Errorf("creates (-want +got):\n%s", diff)
			}
		})
	}
}

func golden(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The printed request of a client dry run goes into a bundle as it is.
func TestClientDryRunPrintsWhatWouldBeSent(t *testing.T) {
	server := newAggregatedServer(t)
	_, printed, _ := server.run(t, createForm, "fix-1", "--target=prod", "-m", "Raise limits", "--dry-run=client", "-o", "json")
	server.run(t, createForm, "fix-1", "--target=prod", "-m", "Raise limits")
	var got v1alpha1.CommitRequest
	if err := json.Unmarshal([]byte(printed), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(server.creates[0].Body, got); diff != "" {
		t.Errorf("printed (-sent +printed):\n%s", diff)
	}
}

func TestTargetLeftOut(t *testing.T) {
	for _, tc := range []struct {
		name    string
		targets []string
		want    string // target of the create; "": none is sent
		stderr  string
	}{
		{name: "one", targets: []string{"prod"}, want: "prod"},
		{name: "none", stderr: "error: there is no GitTarget in namespace \"shop\": create one, or name another namespace with -n\n"},
		{name: "two", targets: []string{"prod", "staging"}, stderr: "error: namespace \"shop\" has more than one GitTarget, choose with --target: prod, staging\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := newAggregatedServer(t)
			server.targets = tc.targets
			code, _, stderr := server.run(t, createForm, "-m", "x")
			if stderr != tc.stderr || (code == 0) != (tc.want != "") {
				t.Errorf("exit code %d, stderr %q, want %q", code, stderr, tc.stderr)
			}
			var got string
			for _, create := range server.creates {
				got += create.Body.Spec.GitTargetRef.Name
			}
			if got != tc.want {
				t.Errorf("created for %q, want %q", got, tc.want)
			}
		})
	}
}

func TestServerErrors(t *testing.T) {
	kind := schema.GroupKind{Group: "kommit.dev", Kind: "CommitRequest"}
	resource := schema.GroupResource{Group: "kommit.dev", Resource: "commitrequests"}
	message := field.Invalid(field.NewPath("spec", "message"), " ", "must not be blank")
	for _, tc := range []struct {
		name   string
		refuse *apierrors.StatusError
		stderr string
	}{{
		name:   "one field",
		refuse: apierrors.NewInvalid(kind, "fix-1", field.ErrorList{message}),
		stderr: "The CommitRequest \"fix-1\" is invalid: spec.message: Invalid value: \" \": must not be blank\n",
	}, {
		name: "two fields, one of them twice",
		refuse: apierrors.NewInvalid(kind, "fix-1", field.ErrorList{
			message, message, field.NotFound(field.NewPath("spec", "gitTargetRef", "name"), "prod"),
		}),
		stderr: "The CommitRequest \"fix-1\" is invalid: \n" +
			"* spec.message: Invalid value: \" \": must not be blank\n" +
			"* spec.gitTargetRef.name: Not found: \"prod\"\n",
	}, {
		name:   "no permission",
		refuse: apierrors.NewForbidden(resource, "fix-1", errors.New("you may not save to prod")),
		stderr: "Error from server (Forbidden): commitrequests.kommit.dev \"fix-1\" is forbidden: you may not save to prod\n",
	}, {
		name:   "taken name",
		refuse: apierrors.NewAlreadyExists(resource, "fix-1"),
		stderr: "Error from server (AlreadyExists): commitrequests.kommit.dev \"fix-1\" already exists\n",
	}, {
		name:   "not logged in",
		refuse: apierrors.NewUnauthorized("Unauthorized"),
		stderr: "error: You must be logged in to the server (Unauthorized)\n",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			server := newAggregatedServer(t)
			status := tc.refuse.Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			server.refuse = &status
			code, stdout, stderr := server.run(t, createForm, "fix-1", "--target=prod")
			if code != 1 || stdout != "" {
				t.Errorf("exit code %d, stdout %q; want 1 and nothing", code, stdout)
			}
			if diff := cmp.Diff(tc.stderr, stderr); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServerNotThere(t *testing.T) {
	server := newAggregatedServer(t)
	server.Close()
	code, _, stderr := server.run(t, createForm, "fix-1", "--target=prod")
	address := strings.TrimPrefix(server.URL, "http://")
	want := "The connection to the server " + address + " was refused - did you specify the right host or port?\n"
	if code != 1 || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

func TestServerWarningsArePrinted(t *testing.T) {
	server := newAggregatedServer(t)
	server.warning = "spec.window.idleTimeout has no effect"
	code, stdout, stderr := server.run(t, createForm, "fix-1", "--target=prod")
	if code != 0 || stdout != "commitrequest.kommit.dev/fix-1 created\n" {
		t.Errorf("exit code %d, stdout %q", code, stdout)
	}
	if want := "Warning: " + server.warning + "\n"; stderr != want {
		t.Errorf("stderr = %q, want %q", stderr, want)
	}
}

func TestUsageErrorsNameTheCommandAsTyped(t *testing.T) {
	for invokedAs, want := range map[string]string{
		createForm:                      "kubectl create commitrequest",
		"kubectl-commit":                "kubectl commit",
		`kubectl-commit.exe`:            "kubectl commit",
		"/opt/krew/bin/kubectl-kommit":  "kubectl kommit",
		"/opt/bin/kubectl-save_changes": "kubectl save-changes",
		"/opt/bin/kommit":               "kommit",
	} {
		server := newAggregatedServer(t)
		code, stdout, stderr := server.run(t, invokedAs, "--no-such-flag")
		if want := "error: unknown flag: --no-such-flag\nSee '" + want + " --help' for usage.\n"; code != 1 || stdout != "" || stderr != want {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %q", invokedAs, code, stdout, stderr, want)
		}
		code, stdout, _ = server.run(t, invokedAs, "--help")
		if code != 0 || !strings.Contains(stdout, "\nUsage:\n  "+want+" [") {
			t.Errorf("%s --help: exit code %d, usage line is not %q:\n%s", invokedAs, code, want, stdout)
		}
		if len(server.creates) != 0 {
			t.Errorf("%s: created %v", invokedAs, server.creates)
		}
	}
}

// A word after "kubectl commit" is for a command to come: it must not be taken
// for a name.
func TestCommitTakesNoWords(t *testing.T) {
	server := newAggregatedServer(t)
	code, _, stderr := server.run(t, "kubectl-commit", "status", "--target=prod")
	if want := "error: unknown command \"status\"\nSee 'kubectl commit --help' for usage.\n"; code != 1 || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
	if len(server.creates) != 0 {
		t.Errorf("created %v", server.creates)
	}
}
