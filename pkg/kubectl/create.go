// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/scheme"
)

const (
	// fieldManager is the one of kubectl's own create commands.
	fieldManager = "kubectl-create"
	// generateName of a request that the user did not name.
	generateName = "save-"
)

// CreateOptions creates one CommitRequest. The exported fields are what flags and
// arguments set; what is not set is not sent, so that the server's defaults hold.
type CreateOptions struct {
	genericiooptions.IOStreams

	// Name of the request. Empty: the server makes one that begins with "save-".
	Name string
	// Target names the GitTarget. Empty: the only one in the namespace.
	Target string
	// Messages are the paragraphs of the commit message, as git commit -m has them.
	// None: the server makes a message that says what changed.
	Messages []string
	// Attach says which window is saved.
	Attach string
	// AttachTimeout, IdleTimeout and MaxDuration are spec.window's.
	AttachTimeout, IdleTimeout, MaxDuration optionalDuration
	// WhenNothingToCommit says what happens when there is nothing to save.
	WhenNothingToCommit string

	// DryRun is none, client or server.
	DryRun string
	// FieldValidation is strict, warn or ignore (or true, false).
	FieldValidation string
	// FieldManager owns the fields that are sent.
	FieldManager string

	PrintFlags *genericclioptions.PrintFlags

	config genericclioptions.RESTClientGetter

	// set by Complete
	command          string
	namespace        string
	enforceNamespace bool
	options          metav1.CreateOptions
	client           versioned.Interface
	printer          printers.ResourcePrinter
}

// NewCreateOptions returns the options' defaults, which are the flags' too.
func NewCreateOptions(config genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *CreateOptions {
	return &CreateOptions{
		DryRun:          dryRunNone,
		FieldValidation: validateStrict,
		FieldManager:    fieldManager,
		PrintFlags:      genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme.Scheme),
		config:          config,
		IOStreams:       streams,
	}
}

// Complete takes the name from args and the namespace, the client and the printer
// from the flags. It sends nothing.
func (o *CreateOptions) Complete(cmd *cobra.Command, args []string) error {
	o.command = cmd.CommandPath()
	switch len(args) {
	case 0:
	case 1:
		o.Name = args[0]
	default:
		return o.usageError("at most one NAME, got %d: %s", len(args), strings.Join(args, " "))
	}

	var err error
	if o.options.DryRun, err = o.dryRun(); err != nil {
		return err
	}
	if o.options.FieldValidation, err = o.fieldValidation(); err != nil {
		return err
	}
	o.options.FieldManager = o.FieldManager

	if o.namespace, o.enforceNamespace, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
		return err
	}
	restConfig, err := o.config.ToRESTConfig()
	if err != nil {
		return err
	}
	if o.client, err = versioned.NewForConfig(restConfig); err != nil {
		return err
	}
	o.printer, err = o.PrintFlags.ToPrinter()
	return err
}

// Validate refuses what no server would take; bounds that a server may move are
// left to it. The error is a *UsageError.
func (o *CreateOptions) Validate() error {
	switch v1alpha1.AttachPolicy(o.Attach) {
	case "", v1alpha1.AttachCurrentOrNext:
	case v1alpha1.AttachNext:
		if d := o.AttachTimeout.value; d != nil && d.Duration == 0 {
			return o.usageError("--attach=Next waits for a window to open: --attach-timeout must be more than 0s")
		}
	default:
		return o.usageError("--attach must be %s or %s, not %q",
			v1alpha1.AttachCurrentOrNext, v1alpha1.AttachNext, o.Attach)
	}

	for _, f := range []struct {
		flag     string
		duration optionalDuration
	}{
		{"--attach-timeout", o.AttachTimeout},
		{"--idle-timeout", o.IdleTimeout},
		{"--max-duration", o.MaxDuration},
	} {
		if d := f.duration.value; d != nil && d.Duration < 0 {
			return o.usageError("%s must not be negative, not %s", f.flag, d.Duration)
		}
	}
	if idle, all := o.IdleTimeout.value, o.MaxDuration.value; idle != nil && all != nil && idle.Duration > all.Duration {
		return o.usageError("--idle-timeout (%s) must not be more than --max-duration (%s)", idle.Duration, all.Duration)
	}

	blank := strings.TrimSpace(joinParagraphs(o.Messages)) == ""
	if blank && len(o.Messages) > 0 {
		return o.usageError("-m holds no text: leave it out for a message that says what changed")
	}
	switch v1alpha1.NothingToCommitPolicy(o.WhenNothingToCommit) {
	case "", v1alpha1.NothingResolve:
	case v1alpha1.NothingCommitEmpty:
		if blank {
			return o.usageError("--when-nothing-to-commit=CommitEmpty records the message, so it needs -m")
		}
	default:
		return o.usageError("--when-nothing-to-commit must be %s or %s, not %q",
			v1alpha1.NothingResolve, v1alpha1.NothingCommitEmpty, o.WhenNothingToCommit)
	}
	return nil
}

// Run creates the request and prints it. With the client's dry run nothing is
// created. Errors of the server are returned as they came, or wrapped; a
// *TargetError when the target was left to choose and there is not exactly one.
func (o *CreateOptions) Run(ctx context.Context) error {
	target, err := o.target(ctx)
	if err != nil {
		return err
	}
	request := o.request(target)
	if o.DryRun != dryRunClient {
		request, err = o.client.KommitV1alpha1().CommitRequests(o.namespace).Create(ctx, request, o.options)
		if err != nil {
			return err
		}
	}
	return o.printer.PrintObj(request, o.Out)
}

// request is what the options ask for, and nothing else.
func (o *CreateOptions) request(target string) *v1alpha1.CommitRequest {
	request := &v1alpha1.CommitRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "CommitRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: o.Name},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: target},
			Message:      joinParagraphs(o.Messages),
			Window: v1alpha1.RequestWindow{
				Attach:        v1alpha1.AttachPolicy(o.Attach),
				AttachTimeout: o.AttachTimeout.value,
				IdleTimeout:   o.IdleTimeout.value,
				MaxDuration:   o.MaxDuration.value,
			},
			WhenNothingToCommit: v1alpha1.NothingToCommitPolicy(o.WhenNothingToCommit),
		},
	}
	if o.Name == "" {
		request.GenerateName = generateName
	}
	if o.enforceNamespace {
		request.Namespace = o.namespace
	}
	return request
}

// target is the one that the user named, else the only one in the namespace.
func (o *CreateOptions) target(ctx context.Context) (string, error) {
	if o.Target != "" {
		return o.Target, nil
	}
	list, err := o.client.KommitV1alpha1().GitTargets(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot look for the namespace's only GitTarget, name one with --target: %w", err)
	}
	if len(list.Items) == 1 {
		return list.Items[0].Name, nil
	}
	choices := make([]string, len(list.Items))
	for i, target := range list.Items {
		choices[i] = target.Name
	}
	return "", &TargetError{Namespace: o.namespace, Choices: choices}
}

func (o *CreateOptions) usageError(format string, args ...any) error {
	return &UsageError{Command: o.command, Err: fmt.Errorf(format, args...)}
}

// joinParagraphs makes one message of the -m flags as git does: a blank line
// between two of them. A single one stays as it is, to the byte.
func joinParagraphs(paragraphs []string) string {
	var message strings.Builder
	for _, paragraph := range paragraphs {
		if message.Len() > 0 {
			if !strings.HasSuffix(message.String(), "\n") {
				message.WriteByte('\n')
			}
			message.WriteByte('\n')
		}
		message.WriteString(paragraph)
	}
	return message.String()
}
