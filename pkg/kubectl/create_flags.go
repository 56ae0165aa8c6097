// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Values of --dry-run. dryRunBare is what --dry-run without a value is read as.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
	dryRunBare   = "unchanged"
)

// Values of --validate.
const (
	validateStrict = "strict"
	validateWarn   = "warn"
	validateIgnore = "ignore"
)

// newCreateCommand is the form that "kubectl create" finds as a plugin. Its name
// is what the user types.
func newCreateCommand(name string, config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := NewCreateOptions(config, streams)
	cmd := saveCommand(name, o)
	cmd.Use += " [NAME]"
	cmd.Long += lookupLimits
	cmd.Example = fmt.Sprintf(createExamples, name)
	cmd.Args = cobra.ArbitraryArgs // Complete counts them
	config.AddFlags(cmd.PersistentFlags())
	return cmd
}

// newCommitCommand is the form that works with every kubectl, and the root that
// further commands (status, log, diff) hang on: a positional word is theirs, so
// the request's name is a flag here.
func newCommitCommand(name string, config *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := NewCreateOptions(config, streams)
	cmd := saveCommand(name, o)
	cmd.Example = fmt.Sprintf(commitExamples, name)
	cmd.Flags().StringVar(&o.Name, "name", o.Name, "Name of the CommitRequest. Unset: one is made that begins with \""+generateName+"\".")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &UsageError{Command: cmd.CommandPath(), Err: fmt.Errorf("unknown command %q", args[0])}
		}
		return nil
	}
	config.AddFlags(cmd.PersistentFlags())
	return cmd
}

// saveCommand is what both forms share: Complete, Validate and Run, and the flags.
func saveCommand(name string, o *CreateOptions) *cobra.Command {
	cmd := &cobra.Command{
		// cobra takes the first word for the name, and shows the annotation.
		Use:         strings.ReplaceAll(name, " ", "-"),
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Save your edits: commit and push them to a GitTarget",
		Long:        createLong,
		// Main prints errors, as kubectl does; usage is for those who ask.
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(cmd, args); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.Target, "target", o.Target, "GitTarget to save to. Unset: the only one in the namespace.")
	flags.StringArrayVarP(&o.Messages, "message", "m", o.Messages, "Commit message, used verbatim. Given again, each is a paragraph. Unset: a message is made that says what changed.")
	flags.StringVar(&o.Attach, "attach", o.Attach, "Edits to save: CurrentOrNext (default) takes those you made since your last save, or else the next; Next closes those first and takes the next.")
	flags.Var(&o.AttachTimeout, "attach-timeout", "How long to wait for an edit when there is none yet, 0s to 5m. Unset: 5s.")
	flags.Var(&o.IdleTimeout, "idle-timeout", "Stop collecting after this long without an edit; at most --max-duration. Unset: silence ends nothing.")
	flags.Var(&o.MaxDuration, "max-duration", "Stop collecting this long after the first edit was there, 0s to 5m. Unset: 2s.")
	flags.StringVar(&o.WhenNothingToCommit, "when-nothing-to-commit", o.WhenNothingToCommit, "Without an edit, Resolve (default) finishes without a commit; CommitEmpty records the message in an empty commit.")
	flags.StringVar(&o.DryRun, "dry-run", o.DryRun, "Must be none, client (print the object, send nothing) or server (the server checks it and stores nothing).")
	flags.Lookup("dry-run").NoOptDefVal = dryRunBare
	flags.StringVar(&o.FieldValidation, "validate", o.FieldValidation, "What the server does about unknown fields. Must be strict (or true), warn, ignore (or false).")
	flags.Lookup("validate").NoOptDefVal = validateStrict
	flags.StringVar(&o.FieldManager, "field-manager", o.FieldManager, "Name of the manager that owns the fields.")
	o.PrintFlags.AddFlags(cmd)
	return cmd
}

// dryRun is the API's dryRun parameter. It also makes the printer say which dry
// run it was.
func (o *CreateOptions) dryRun() ([]string, error) {
	switch o.DryRun {
	case dryRunNone:
		return nil, nil
	case dryRunBare:
		fmt.Fprintln(o.ErrOut, "Warning: --dry-run without a value is deprecated, use --dry-run=client.")
		o.DryRun = dryRunClient
		fallthrough
	case dryRunClient:
		return nil, o.PrintFlags.Complete("%s (dry run)")
	case dryRunServer:
		return []string{metav1.DryRunAll}, o.PrintFlags.Complete("%s (server dry run)")
	}
	return nil, o.usageError("--dry-run must be %s, %s or %s, not %q", dryRunNone, dryRunClient, dryRunServer, o.DryRun)
}

// fieldValidation is the API's fieldValidation parameter.
func (o *CreateOptions) fieldValidation() (string, error) {
	if strict, err := strconv.ParseBool(o.FieldValidation); err == nil {
		if strict {
			return metav1.FieldValidationStrict, nil
		}
		return metav1.FieldValidationIgnore, nil
	}
	switch o.FieldValidation {
	case validateStrict:
		return metav1.FieldValidationStrict, nil
	case validateWarn:
		return metav1.FieldValidationWarn, nil
	case validateIgnore:
		return metav1.FieldValidationIgnore, nil
	}
	return "", o.usageError("--validate must be %s (or true), %s, %s (or false), not %q",
		validateStrict, validateWarn, validateIgnore, o.FieldValidation)
}

// optionalDuration is a flag that tells 0s from not set.
type optionalDuration struct{ value *metav1.Duration }

// Set parses a duration as Go writes it.
func (d *optionalDuration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	d.value = &metav1.Duration{Duration: parsed}
	return nil
}

// String is the duration, or nothing when it is not set.
func (d *optionalDuration) String() string {
	if d.value == nil {
		return ""
	}
	return d.value.Duration.String()
}

// Type is what --help calls the value.
func (d *optionalDuration) Type() string { return "duration" }
