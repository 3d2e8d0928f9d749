// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/sdk/utils"
)

// logTo makes what plugins log through the SDK go to the logger. The SDK's variables are the
// process's: the last call wins.
func logTo(logger klog.Logger) {
	logger = logger.WithName("plugin").WithCallDepth(1)
	utils.Logb = func(level int) bool { return logger.V(level).Enabled() }
	utils.Logf = func(level int, format string, args ...any) { logger.V(level).Info(fmt.Sprintf(format, args...)) }
	utils.Warningf = func(format string, args ...any) {
		logger.Info(fmt.Sprintf(format, args...), "severity", "warning")
	}
	utils.Errorf = func(format string, args ...any) { logger.Error(nil, fmt.Sprintf(format, args...)) }
}
