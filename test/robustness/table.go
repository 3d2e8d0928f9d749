// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"fmt"
	"strings"
)

// line is a line of the table of releases in docs/deploy/upgrade.md.
type line struct {
	part, other, works, first string
	// shown says whether a step of the walk shows it. Without, it is shown by the refusals.
	shown func(from, to skew) bool
}

// lines are the lines of the table.
var lines = []line{
	{
		"newer `kube-scheduler`", "older `kubecri`", "all; the node does not look at seals",
		"do not enforce seals",
		func(_, to skew) bool { return to.scheduler == now && to.kubecri == before },
	},
	{
		"older `kube-scheduler`", "newer `kubecri`", "all, unless the node enforces seals",
		"`sealMode: warn` or `off`",
		func(_, to skew) bool { return to.scheduler == before && to.kubecri == now },
	},
	{
		"newer `kube-scheduler`", "pods of the older", "all",
		"apply `deploy/rbac`",
		func(from, to skew) bool { return from.scheduler == before && to.scheduler == now },
	},
	{
		"older `kube-scheduler`", "pods of the newer", "all",
		"take new flags away: it does not start",
		func(from, to skew) bool { return from.scheduler == now && to.scheduler == before },
	},
	{
		"newer `kubecri`", "state of the older", "all",
		"nothing",
		func(from, to skew) bool { return from.kubecri == before && to.kubecri == now },
	},
	{
		"older `kubecri`", "state of the newer", "`grants`, as below",
		"take new fields away: it does not start",
		func(from, to skew) bool { return from.kubecri == now && to.kubecri == before },
	},
	{
		"older `kubecri`", "pods that require the newer", "nothing: their containers are refused", "`--nri-socket=`",
		nil,
	},
	{
		"newer programs", "older `deploy`", "all; seals are not guarded",
		"apply the newer",
		func(_, to skew) bool { return to == skew{now, now, before} },
	},
	{
		"older programs", "newer `deploy`", "all",
		"nothing",
		func(_, to skew) bool { return to == skew{before, before, now} },
	},
	{
		"a program", "plugin files of another", "nothing: they are not loaded, the log says why",
		"install both at once",
		nil,
	},
}

// Table returns the table of releases as docs/deploy/upgrade.md has it.
func Table() string {
	var table strings.Builder
	table.WriteString("| of one release | with | what works | first |\n|---|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", l.part, l.other, l.works, l.first)
	}
	return table.String()
}
