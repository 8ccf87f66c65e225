// One dashboard, drawn from its JSON with Grafana's own components: its queries go to a real Prometheus, its answers become Grafana's data
// frames, and its field configuration is applied by Grafana's own code. What Grafana's server and its dashboard application would add is
// done here: the grid, the variables of queries, and a panel's defaults.
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import 'uplot/dist/uPlot.min.css';
import {
  FieldConfigOptionsRegistry, FieldType, ThemeContext, applyFieldOverrides, createTheme, dateTime, getFieldDisplayValues, rangeUtil, toDataFrame,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

const CELL = 30, GAP = 8, COLUMNS = 24, WIDTH = 1400; // Grafana's grid
const SCRAPE = 5; // seconds
const asked = new URLSearchParams(location.search);
const dashboard = await (await fetch(`/${asked.get('dashboard')}.json`)).json();
const from = Number(asked.get('from')), to = Number(asked.get('to'));
const range = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: 'now-15m', to: 'now' } };
const theme = createTheme({ colors: { mode: 'dark' } });

// What a panel of this type has where its JSON says nothing.
const DEFAULTS = {
  timeseries: {
    color: { mode: 'palette-classic' },
    custom: {
      drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', pointSize: 5, showPoints: 'auto',
      spanNulls: false, axisPlacement: 'auto', axisColorMode: 'text', scaleDistribution: { type: 'linear' }, thresholdsStyle: { mode: 'off' },
    },
  },
  stat: { color: { mode: 'thresholds' }, custom: {} },
};
const THRESHOLDS = { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }, { value: 80, color: 'red' }] };

function defaultsOf({ type, fieldConfig: { defaults } }) {
  const base = DEFAULTS[type];
  const thresholds = defaults.thresholds && {
    ...defaults.thresholds, steps: defaults.thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })),
  };
  return { ...base, ...defaults, thresholds: thresholds ?? THRESHOLDS, custom: { ...base.custom, ...defaults.custom } };
}

const plain = (id, isCustom) => ({ id, path: id, isCustom, name: id, process: (value) => value, shouldApply: (field) => field.type === FieldType.number });
const registryOf = (defaults) => new FieldConfigOptionsRegistry(() => [
  ...Object.keys(defaults).filter((key) => key !== 'custom').map((key) => plain(key, false)),
  ...Object.keys(defaults.custom).map((key) => ({ ...plain(key, true), id: `custom.${key}` })),
]);

// As the time series panel takes it: what is no finite number is a gap.
const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null);

async function framesOf(panel, width) {
  const step = Math.max(rangeUtil.calculateInterval(range, width, `${SCRAPE}s`).intervalMs / 1000, SCRAPE);
  const values = {
    $__rate_interval: `${Math.max(step + SCRAPE, 4 * SCRAPE)}s`, $__range: `${Math.ceil(to - from)}s`, $job: '.*', $instance: '.*',
  };
  const frames = [];
  for (const { refId, expr, legendFormat, instant } of panel.targets) {
    const query = Object.entries(values).reduce((text, [name, value]) => text.replaceAll(name, value), expr);
    const stretch = { step, start: Math.floor(from / step) * step, end: Math.floor(to / step) * step };
    const [path, when] = instant ? ['query', { time: to }] : ['query_range', stretch];
    const answer = await (await fetch(`/api/v1/${path}?${new URLSearchParams({ query, ...when })}`)).json();
    if (answer.status !== 'success') throw new Error(`${panel.title}: ${answer.error}`);
    for (const { metric, value, values: samples = [value] } of answer.data.result) {
      const displayNameFromDS = legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '');
      frames.push(toDataFrame({ refId, fields: [
        { name: 'Time', type: FieldType.time, values: samples.map(([time]) => time * 1000), config: { interval: step * 1000 } },
        { name: 'Value', type: FieldType.number, values: samples.map(([, text]) => number(text)), labels: metric, config: { displayNameFromDS } },
      ] }));
    }
  }
  const defaults = defaultsOf(panel);
  return applyFieldOverrides({
    data: frames, fieldConfig: { defaults, overrides: panel.fieldConfig.overrides }, fieldConfigRegistry: registryOf(defaults),
    replaceVariables: (text) => text, theme, timeZone: 'utc',
  });
}

function Content({ panel, frames, width, height }) {
  const { defaults } = panel.fieldConfig;
  if (panel.type === 'timeseries' && frames.length) {
    const legend = { showLegend: true, calcs: [], ...panel.options.legend };
    return <TimeSeries frames={frames} width={width} height={height} timeRange={range} timeZone="utc" legend={legend} options={panel.options} />;
  }
  if (panel.type === 'stat') {
    const { reduceOptions, ...look } = panel.options;
    const [shown] = getFieldDisplayValues({
      data: frames, fieldConfig: { defaults: defaultsOf(panel), overrides: [] }, reduceOptions, sparkline: true, theme, timeZone: 'utc',
      replaceVariables: (text) => text,
    });
    return <BigValue value={shown.display} sparkline={shown.sparkline} count={1} theme={theme} width={width} height={height} textMode="auto" {...look} />;
  }
  const middle = { display: 'flex', alignItems: 'center', justifyContent: 'center', height, color: theme.colors.text.secondary };
  return <div style={middle}>{defaults.noValue ?? 'No data'}</div>;
}

function Panel({ panel, onDrawn }) {
  const [frames, setFrames] = useState(null);
  const column = (WIDTH - GAP * (COLUMNS + 1)) / COLUMNS;
  const { x, y, w, h } = panel.gridPos;
  const width = w * column + (w - 1) * GAP, height = h * CELL + (h - 1) * GAP;
  useEffect(() => { framesOf(panel, width).then(setFrames); }, []);
  useEffect(() => { if (frames) onDrawn(panel.id); }, [frames]);
  return (
    <div style={{ position: 'absolute', left: GAP + x * (column + GAP), top: GAP + y * (CELL + GAP) }}>
      <PanelChrome title={panel.title} description={panel.description} width={width} height={height} padding={panel.type === 'stat' ? 'none' : 'md'}>
        {(innerWidth, innerHeight) => frames && <Content panel={panel} frames={frames} width={innerWidth} height={innerHeight} />}
      </PanelChrome>
    </div>
  );
}

function Dashboard() {
  const [drawn] = useState(new Set());
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const onDrawn = (id) => { if (drawn.add(id).size === dashboard.panels.length) document.title = 'drawn'; };
  const size = { position: 'relative', width: WIDTH, height: rows * (CELL + GAP) + GAP, background: theme.colors.background.canvas };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <main style={size}>{dashboard.panels.map((panel) => <Panel key={panel.id} panel={panel} onDrawn={onDrawn} />)}</main>
    </ThemeContext.Provider>
  );
}

await Promise.all(['400 12px Inter', '500 14px Inter'].map((font) => document.fonts.load(font)));
createRoot(document.getElementById('root')).render(<Dashboard />);
