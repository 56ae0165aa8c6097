// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubectl is kommit's kubectl plugin. One binary answers by the name it
// is called by: kubectl-create-commitrequest is "kubectl create commitrequest",
// any other kubectl-NAME is "kubectl NAME".
//
// Data goes to stdout, all else to stderr; what a command prints and how it
// fails is what kubectl's own commands do.
package kubectl

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // users' kubeconfigs name these
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// createCommitRequest is the file name by which "kubectl create" finds a plugin
// for the noun commitrequest.
const createCommitRequest = "kubectl-create-commitrequest"

// StandardStreams are the process's own.
func StandardStreams() genericiooptions.IOStreams {
	return genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
}

// Main runs the plugin as args, the name it was called by included, ask for, and
// returns the process's exit code: 0, or 1 after the error was printed.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	invokedAs, args := "kubectl-commit", args
	if len(args) > 0 {
		invokedAs, args = args[0], args[1:]
	}
	cmd := NewCommand(invokedAs, streams)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(streams.ErrOut, ErrorText(err))
		return 1
	}
	return 0
}

// NewCommand returns the command that the plugin is when it is called by
// invokedAs, a path or a name.
func NewCommand(invokedAs string, streams genericiooptions.IOStreams) *cobra.Command {
	file := strings.TrimSuffix(filepath.Base(invokedAs), ".exe")
	var cmd *cobra.Command
	if file == createCommitRequest {
		cmd = newCreateCommand("kubectl create commitrequest", configFlags(streams), streams)
	} else {
		cmd = newCommitCommand(commandName(file), configFlags(streams), streams)
	}
	cmd.PersistentFlags().AddGoFlag(verbosity())
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{Command: cmd.CommandPath(), Err: err}
	})
	return cmd
}

// commandName is what a user types to run the plugin in file: kubectl maps "-" to
// a blank and "_" to "-".
func commandName(file string) string {
	noun, isPlugin := strings.CutPrefix(file, "kubectl-")
	if !isPlugin {
		return file
	}
	return "kubectl " + strings.NewReplacer("-", " ", "_", "-").Replace(noun)
}

// verbosity is kubectl's -v: from 6 on, each request to the server is logged.
func verbosity() *flag.Flag {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Lookup("v")
}

// configFlags are kubectl's connection flags. The server's warnings are printed
// as kubectl prints them, each once.
func configFlags(streams genericiooptions.IOStreams) *genericclioptions.ConfigFlags {
	warnings := rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{
		Deduplicate: true,
		Color:       printers.AllowsColorOutput(streams.ErrOut),
	})
	return genericclioptions.NewConfigFlags(true).
		WithWarningPrinter(streams).
		WithWrapConfigFn(func(config *rest.Config) *rest.Config {
			config.WarningHandler = warnings
			return config
		})
}
