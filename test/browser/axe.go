// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// Axe is the text of axe-core, which finds what keeps people from using a page.
type Axe string

// ReadAxe reads axe-core, which "make" installs from the package.json of this directory. Without
// Node.js the test is skipped, which is a failure with CI=true.
func ReadAxe(t *testing.T, root string) Axe {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "test", "browser", "node_modules", "axe-core", "axe.min.js"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED: it needs Node.js, and \"npm ci\" in test/browser: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Axe(text)
}

// violations runs axe-core. What it finds has an element and the reason, in the words of axe-core.
const violations = `axe.run({resultTypes: ["violations"]}).then(({violations, passes}) => ({
	passes: passes.length,
	violations: violations.filter(({impact}) => impact === "serious" || impact === "critical").flatMap(found =>
		found.nodes.map(node => found.impact + ", " + found.id + ": " + node.html + ": " + node.failureSummary)),
}))`

// HoldTo fails the test for each fault of the page, as it is now, that axe-core calls serious or
// critical.
func (p *Page) HoldTo(axe Axe, what string) {
	p.t.Helper()
	p.Do("load axe-core", chromedp.Evaluate[chromedp.Void](string(axe)))
	found := Value[struct {
		Passes     int
		Violations []string
	}](p, violations)
	if found.Passes == 0 {
		p.t.Errorf("%s: axe-core has checked nothing", what)
	}
	for _, violation := range found.Violations {
		p.t.Errorf("%s: %s", what, violation)
	}
}
