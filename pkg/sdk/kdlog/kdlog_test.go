// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kdlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/kdlog"
	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

func TestMessagesReachTheHostsLogger(t *testing.T) {
	var lines []string
	write := func(severity string) func(string, ...any) {
		return func(format string, args ...any) { lines = append(lines, severity+fmt.Sprintf(format, args...)) }
	}
	logb, logf, warningf, errorf := utils.Logb, utils.Logf, utils.Warningf, utils.Errorf
	t.Cleanup(func() { utils.Logb, utils.Logf, utils.Warningf, utils.Errorf = logb, logf, warningf, errorf })
	utils.Logb = func(level int) bool { return level <= 4 }
	utils.Logf = func(_ int, format string, args ...any) { write("I ")(format, args...) }
	utils.Warningf, utils.Errorf = write("W "), write("E ")

	kdlog.InitLogs()
	kdlog.Info("at 100", "%")
	kdlog.Infof("%d GPUs", 8)
	kdlog.Infoln("two", "words")
	kdlog.Warning("w")
	kdlog.Warningf("%d", 1)
	kdlog.Warningln("w", 2)
	kdlog.Error("e")
	kdlog.Errorf("%d", 1)
	kdlog.Errorln("e", 2)
	kdlog.V(4).Info("four")
	kdlog.V(4).Infof("%s", "four")
	kdlog.V(4).Infoln("four", 4)
	kdlog.V(5).Info("five")
	kdlog.V(5).Infof("%s", "five")
	kdlog.V(5).Infoln("five", 5)
	if kdlog.V(5) {
		t.Error("level 5 is off")
	}
	kdlog.FlushLogs()

	want := []string{
		"I at 100%", "I 8 GPUs", "I two words", "W w", "W 1", "W w 2", "E e", "E 1", "E e 2",
		"I four", "I four", "I four 4",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
