// node draw.mjs PROMETHEUS FROM TO: a picture of every dashboard in this stretch of time (Unix seconds), into docs/grafana.
import { readdirSync } from 'node:fs';
import { chromium } from 'playwright-core';
import sharp from 'sharp';
import { createServer } from 'vite';

const [prometheus, from, to] = process.argv.slice(2);
const folder = new URL('../../../docs/grafana/', import.meta.url).pathname;
const icons = ({ url }) => url.replace('/public/build', '/node_modules/@grafana/ui/dist/public');
const server = await createServer({
  root: import.meta.dirname,
  publicDir: '../dashboards',
  logLevel: 'warn',
  server: { port: 0, host: '127.0.0.1', proxy: { '/api/v1': prometheus, '/public/build': { target: prometheus, bypass: icons } } },
});
await server.listen();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const page = await browser.newPage({ viewport: { width: 1400, height: 800 }, reducedMotion: 'reduce' });
page.on('pageerror', (fault) => { console.error(fault); process.exitCode = 1; });
for (const file of readdirSync(new URL('../dashboards/', import.meta.url))) {
  const dashboard = file.replace('.json', '');
  await page.goto(`${server.resolvedUrls.local[0]}?${new URLSearchParams({ dashboard, from, to })}`);
  await page.waitForFunction(() => document.title === 'drawn', undefined, { timeout: 120_000 });
  await page.waitForTimeout(1000);
  const picture = await page.locator('main').screenshot();
  await sharp(picture).png({ palette: true, effort: 10 }).toFile(`${folder}${dashboard}.png`);
}
await browser.close();
await server.close();
