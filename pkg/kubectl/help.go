// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

const createLong = `Save your edits: the changes that you made to a GitTarget's objects since your last
save become one commit, authored by you, with your message, and are pushed.

The command returns as soon as the CommitRequest is stored. What became of it is on
the object:

  kubectl wait --for=condition=Ready commitrequest/NAME
  kubectl get commitrequest NAME`

// lookupLimits are kubectl's rules for plugins below "create", as measured with
// kubectl 1.27 to 1.37.
const lookupLimits = `

kubectl finds this command from version 1.29 on, and takes a NAME from version 1.31
on. Put all flags after the word commitrequest: with "kubectl -n shop create
commitrequest" or "kubectl create -n shop commitrequest" kubectl does not look for
it. "kubectl commit" does the same without these limits.`

// The verb in each of these is the command's name.
const (
	createExamples = `  # Save to the only GitTarget of the namespace
  %[1]s -m "Raise the limits"

  # A subject and a body, to the GitTarget prod of the namespace shop
  %[1]s raise-limits -n shop --target prod -m "Raise the limits" -m "Checkout ran out of memory."

  # Take what is there now, wait for nothing
  %[1]s -m "Raise the limits" --attach-timeout=0s --max-duration=0s

  # Print the request for a bundle, create nothing
  %[1]s save --target prod -m "Raise the limits" --dry-run=client -o yaml`

	commitExamples = `  # Save to the only GitTarget of the namespace
  %[1]s -m "Raise the limits"

  # A subject and a body, to the GitTarget prod of the namespace shop
  %[1]s -n shop --target prod -m "Raise the limits" -m "Checkout ran out of memory."

  # Take what is there now, wait for nothing
  %[1]s -m "Raise the limits" --attach-timeout=0s --max-duration=0s`
)
