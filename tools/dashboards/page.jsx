// The page of draw.mjs: a dashboard of Grafana, drawn by Grafana's own panels. window.board
// has the dashboard, and for each panel the answers of Prometheus.
import { createTheme, dateTime, FieldType, getDisplayProcessor, getFieldDisplayName, toDataFrame } from '@grafana/data';
import { GlobalStyles, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui';
import React from 'react';
import 'uplot/dist/uPlot.min.css';
import { createRoot } from 'react-dom/client';

const theme = createTheme({ colors: { mode: 'dark' } });

// The defaults of a panel "timeseries", which its JSON may leave out.
const style = {
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', showPoints: 'auto', pointSize: 5,
  spanNulls: false, axisPlacement: 'auto', axisLabel: '', scaleDistribution: { type: 'linear' }, hideFrom: { legend: false, tooltip: false, viz: false },
};

// framesOf makes the frames of a panel, one for each series, as Grafana's source of
// Prometheus does.
function framesOf(panel) {
  const { defaults } = panel.fieldConfig;
  const frames = panel.answers.flatMap(({ series, legend, refId }) => series.map(({ metric, values }) => {
    const name = legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? label);
    const config = { color: { mode: 'palette-classic' }, ...defaults, displayNameFromDS: name, custom: { ...style, ...defaults.custom } };
    return toDataFrame({ refId, fields: [
      { name: 'Time', type: FieldType.time, config: {}, values: values.map(([time]) => time * 1000) },
      { name: 'Value', type: FieldType.number, labels: metric, config, values: values.map(([, value]) => (value === 'NaN' ? null : Number(value))) },
    ] });
  }));
  frames.forEach((frame, i) => {
    const field = frame.fields[1];
    field.state = { seriesIndex: i };
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    field.state.displayName = getFieldDisplayName(field, frame, frames);
  });
  return frames;
}

function Panel({ panel, range, width, height }) {
  const frames = framesOf(panel);
  return (
    <PanelChrome title={panel.title} width={width} height={height}>
      {(w, h) => frames.length === 0 ? <div style={{ textAlign: 'center', paddingTop: h / 2 - 10 }}>{panel.fieldConfig.defaults.noValue}</div> : (
        <TimeSeries frames={frames} structureRev={1} timeRange={range} timeZone="utc" width={w} height={h}
          legend={{ showLegend: true, calcs: [], ...panel.options.legend }} />
      )}
    </PanelChrome>
  );
}

// A column of Grafana's grid has 24 parts of the width, a row 30 pixels, with 8 between.
function Dashboard({ board, width }) {
  const from = dateTime(board.from * 1000), to = dateTime(board.to * 1000);
  const range = { from, to, raw: { from, to } };
  const column = (width - 24) / 24;
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ padding: '12px 16px', fontSize: 20 }}>{board.title}
        <span style={{ float: 'right', fontSize: 13, color: theme.colors.text.secondary }}>
          {from.utc().format('YYYY-MM-DD HH:mm:ss')} to {to.utc().format('HH:mm:ss')} UTC
        </span>
      </div>
      <div style={{ position: 'relative', margin: '0 12px' }}>
        {board.panels.map((panel) => {
          const { x, y, w, h } = panel.gridPos;
          const place = { position: 'absolute', left: x * column + 4, top: y * 38, width: w * column - 8, height: h * 38 - 8 };
          return (
            <div key={panel.id} style={place}>
              {panel.type === 'row' ? <div style={{ fontSize: 16, fontWeight: 500, paddingTop: 4 }}>⌄ {panel.title}</div>
                : <Panel panel={panel} range={range} width={place.width} height={place.height} />}
            </div>
          );
        })}
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')).render(<Dashboard board={window.board} width={window.innerWidth} />);
