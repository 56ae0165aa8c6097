// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/version/verflag"
)

// NewCommand returns the kommit-apiserver command. It runs until the process is
// told to stop. Its subcommands save and restore the storage file, and share none
// of its flags.
func NewCommand() *cobra.Command {
	options := NewOptions()
	command := &cobra.Command{
		Use:   "kommit-apiserver",
		Short: "Saves cluster edits to Git on demand",
		Long: `kommit-apiserver serves the API group kommit.dev to the kube-apiserver, which
aggregates it. It watches the objects that WatchRules name and turns the edits
of each user into one Git commit when that user creates a CommitRequest.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			verflag.PrintAndExitIfRequested()
			if err := options.Validate(); err != nil {
				return err
			}
			return options.Run(genericapiserver.SetupSignalContext())
		},
	}
	options.AddFlags(command.Flags())
	verflag.AddFlags(command.Flags())
	command.AddCommand(newBackupCommand(), newRestoreCommand())
	return command
}
