// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types. Ready, Reconciling and Stalled are kstatus' and are on every
// kind; the others belong to CommitRequest.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	// ConditionPushed says whether the commit is on the remote.
	ConditionPushed = "Pushed"
	// ConditionAttributed says whether the request has an author.
	ConditionAttributed = "Attributed"
	// ConditionCaughtUp says whether the save provably holds all that its author did
	// before it (DESIGN 5.5).
	ConditionCaughtUp = "CaughtUp"
	// ConditionAttributionDegraded is on GitTargets whose changes find their authors by
	// audit: True says why they cannot, and what to set (C12).
	ConditionAttributionDegraded = "AttributionDegraded"
)

// Reasons on a CommitRequest's conditions (DESIGN 4.4).
const (
	ReasonWaitingForWindow     = "WaitingForWindow"
	ReasonCollectingWindow     = "CollectingWindow"
	ReasonWaitingForPush       = "WaitingForPush"
	ReasonCommitted            = "Committed"
	ReasonEmptyCommit          = "EmptyCommit"
	ReasonNoOpenWindow         = "NoOpenWindow"
	ReasonWindowMismatch       = "WindowMismatch"
	ReasonAlreadyPresent       = "AlreadyPresent"
	ReasonSaveInProgress       = "SaveInProgress"
	ReasonRemoteRejected       = "RemoteRejected"
	ReasonAuthenticationFailed = "AuthenticationFailed"
	ReasonTargetSuspended      = "TargetSuspended"
	ReasonTargetDeleted        = "TargetDeleted"
	ReasonCommitFailed         = "CommitFailed"
	// ReasonAuthenticated is on Attributed: the author is the authenticated user.
	ReasonAuthenticated = "Authenticated"
	// ReasonCaughtUp, ReasonCatchUpTimeout and ReasonCutShort are on CaughtUp.
	ReasonCaughtUp       = "CaughtUp"
	ReasonCatchUpTimeout = "CatchUpTimeout"
	ReasonCutShort       = "CutShort"
)

// Reasons on AttributionDegraded.
const (
	// ReasonNoAuditEvents: changes came, but no audit events about them.
	ReasonNoAuditEvents = "NoAuditEvents"
	// ReasonNoResponseBodies: the audit policy leaves the responses out.
	ReasonNoResponseBodies = "NoResponseBodies"
	// ReasonAuditEventsLate: audit events came after their changes were given up.
	ReasonAuditEventsLate = "AuditEventsLate"
	// ReasonNothingAmiss: no sign of any of these in the last ten minutes.
	ReasonNothingAmiss = "NothingAmiss"
)

// Reasons on GitProviders, GitTargets and WatchRules.
const (
	ReasonReady            = "Ready"
	ReasonProgressing      = "Progressing"
	ReasonUnreachable      = "Unreachable"
	ReasonUnsupported      = "Unsupported"
	ReasonInvalidSecret    = "InvalidSecret"
	ReasonProviderNotFound = "ProviderNotFound"
	// ReasonFlushing: the target is deleted, and what was collected is being pushed.
	ReasonFlushing          = "Flushing"
	ReasonTargetNotFound    = "TargetNotFound"
	ReasonBranchNotAllowed  = "BranchNotAllowed"
	ReasonPathOverlap       = "PathOverlap"
	ReasonSensitiveResource = "SensitiveResource"
	ReasonUnknownResource   = "UnknownResource"
	ReasonListFailed        = "ListFailed"
)
