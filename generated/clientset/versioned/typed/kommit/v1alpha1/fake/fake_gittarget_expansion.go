// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"

	testing "k8s.io/client-go/testing"

	v1alpha1 "github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// ListCommits answers what a reactor to "get" of gittargets/commits returns.
func (c *fakeGitTargets) ListCommits(_ context.Context, gitTargetName string, _ v1alpha1.CommitListOptions) (*v1alpha1.CommitList, error) {
	obj, err := c.Fake.Invokes(testing.NewGetSubresourceAction(c.Resource(), c.Namespace(), "commits", gitTargetName), &v1alpha1.CommitList{})
	if obj == nil {
		return nil, err
	}
	return obj.(*v1alpha1.CommitList), err
}
