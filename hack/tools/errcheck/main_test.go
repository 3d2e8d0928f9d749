// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// What is reported for each line stands in the line itself, after "want".
func TestDroppedErrorsNeedADirectiveWithAReason(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analyzer, "drops")
}
